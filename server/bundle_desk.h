// Bundles: what captured graphs became. Keeps what clients tell after checking it, and hands it out with its artifacts.
#ifndef STEPONE_SERVER_BUNDLE_DESK_H_
#define STEPONE_SERVER_BUNDLE_DESK_H_

#include <string>

#include "absl/status/statusor.h"
#include "cache/bundle_cache.h"
#include "proto/signing.h"
#include "server/artifact_desk.h"
#include "server/metrics.h"
#include "server/request_limits.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::server {

// Raised when the meaning of a stored bundle changes; older ones are misses then.
inline constexpr uint32_t kBundleFormatVersion = 1;

// Thread-safe. Calls read and write the stores, so they are no work for gRPC's threads.
class BundleDesk {
 public:
  // All must outlive the desk.
  BundleDesk(const RequestLimits& limits, ArtifactDesk* artifacts, Store* store, const SigningKey* key,
             Metrics* metrics);

  // REQUIRES: called once, before any request.
  void SetWorkers(const std::string& fingerprint, const Offer& offer);

  // Not found is an answer. A bundle whose artifacts are gone is not found.
  absl::StatusOr<v1::FindBundleResponse> Find(const v1::TraceRequest& request);

  // The first writer wins. kFailedPrecondition when an artifact is not here or was made for something else;
  // kInvalidArgument when the convention does not fit (bundle_check.h).
  absl::StatusOr<v1::PutBundleResponse> Put(const v1::PutBundleRequest& request);

  absl::StatusOr<v1::ExplainResponse> Explain(const v1::TraceRequest& request);

 private:
  absl::StatusOr<KeyMaterial> Check(const v1::TraceRequest& request) const;
  // What is stored, if it is ours and of this format.
  absl::StatusOr<v1::Bundle> Open(const CachedBundle& cached, const v1::TraceRequest& request,
                                  const KeyMaterial& material) const;
  // The manifest of an artifact that a bundle for `request` may name.
  absl::StatusOr<v1::Manifest> Manifest(const v1::TraceRequest& request, const v1::BundleGraph& graph);
  v1::SignedBundle Sign(const v1::PutBundleRequest& request, const KeyMaterial& material) const;

  const RequestLimits limits_;
  ArtifactDesk* const artifacts_;
  const SigningKey* const key_;
  Metrics* const metrics_;
  BundleCache bundles_;
  std::string fingerprint_;  // constant after SetWorkers()
  Offer offer_;              // likewise
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_BUNDLE_DESK_H_
