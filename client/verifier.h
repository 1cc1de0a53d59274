// Decides whether an artifact may be mapped and run here.
#ifndef STEPONE_CLIENT_VERIFIER_H_
#define STEPONE_CLIENT_VERIFIER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/plan.h"
#include "proto/digest.h"
#include "proto/signing.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::client {

// An artifact whose manifest was found good. Its objects are still to be had: Digests and sizes say which.
struct VerifiedManifest {
  v1::Manifest manifest;
  std::string graph_key;
  Plan plan;
  std::vector<Digest> objects;  // one per Manifest.objects
};

// What the request asked for; an artifact that does not answer it is refused.
struct ExpectedArtifact {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  int inputs = 0;
  int outputs = 0;
};

// Checks a manifest in this order and stops at the first fault, before anything of it is used:
//   signature by a trusted key         kPermissionDenied
//   manifest parses, and has the role, inputs and outputs of the request    kDataLoss
//   artifact format and kernel ABI version are this client's                kFailedPrecondition
//   target fits `host`                 kFailedPrecondition
//   object and kernel tables           kDataLoss
//   plan (CheckPlan)                   kDataLoss
// Thread-safe.
absl::StatusOr<VerifiedManifest> VerifyManifest(const v1::SignedManifest& signed_manifest, const TrustedKeys& keys,
                                                const v1::Target& host, const ExpectedArtifact& expected);

// Maps the kernels of a verified manifest. `objects` holds the bytes of those that are not mapped yet; each is checked
// against digest and size. kDataLoss for a wrong or missing object or symbol.
absl::StatusOr<KernelSet> MapKernels(const VerifiedManifest& verified, const std::vector<v1::ObjectBytes>& objects);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_VERIFIER_H_
