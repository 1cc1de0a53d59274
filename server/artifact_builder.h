// From a worker's answer to an artifact that clients may trust.
#ifndef STEPONE_SERVER_ARTIFACT_BUILDER_H_
#define STEPONE_SERVER_ARTIFACT_BUILDER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/digest.h"
#include "proto/signing.h"
#include "stepone/v1/compile_service.pb.h"
#include "stepone/v1/worker.pb.h"

namespace stepone::server {

// Checks what can be checked without running it (every object is there once and has the digest that the manifest names,
// kernels refer to objects that exist), stamps the manifest with the key and the fingerprint, serialises it once and
// signs. Takes the parts out of `result`. kInternal when the worker's answer contradicts itself.
absl::StatusOr<v1::Artifact> BuildArtifact(v1::JobResult& result, const Digest& graph_key,
                                           const std::string& fingerprint, const std::string& tenant,
                                           const SigningKey& key);

// What one client gets: objects that it does not know and that fit into `inline_bytes` together. The others, which it
// has to fetch, are returned through `left_out` (pointers into `artifact`).
v1::Artifact ForClient(const v1::Artifact& artifact, const std::vector<std::string>& known_objects, size_t inline_bytes,
                       std::vector<const v1::ObjectBytes*>& left_out);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_ARTIFACT_BUILDER_H_
