#include "server/artifact_builder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace stepone::server {
namespace {

absl::Status CheckParts(const v1::JobResult& result) {
  const v1::Manifest& manifest = result.manifest();
  if (manifest.objects_size() != result.objects_size()) {
    return absl::InternalError(absl::StrCat("worker's manifest names ", manifest.objects_size(), " objects and ",
                                            result.objects_size(), " came"));
  }
  for (int i = 0; i < manifest.objects_size(); ++i) {
    const v1::ObjectRef& reference = manifest.objects(i);
    const std::string& data = result.objects(i).data();
    if (reference.digest() != result.objects(i).digest() || reference.size_bytes() != data.size() ||
        reference.digest() != Sha256(data).Raw()) {
      return absl::InternalError(
          absl::StrCat("object ", i, " of the worker's answer is not the one that its manifest names"));
    }
  }
  for (const v1::Kernel& kernel : manifest.kernels()) {
    if (kernel.object() >= static_cast<uint32_t>(manifest.objects_size())) {
      return absl::InternalError(absl::StrCat("kernel ", kernel.name(), " of the worker's answer has no object"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Artifact> BuildArtifact(v1::JobResult& result, const Digest& graph_key,
                                           const std::string& fingerprint, const std::string& tenant,
                                           const SigningKey& key) {
  if (absl::Status status = CheckParts(result); !status.ok()) return status;
  v1::Manifest& manifest = *result.mutable_manifest();
  manifest.set_graph_key(graph_key.Raw());
  manifest.set_compiler_fingerprint(fingerprint);

  v1::Artifact artifact;
  v1::SignedManifest& signed_manifest = *artifact.mutable_signed_manifest();
  signed_manifest.set_manifest(manifest.SerializeAsString());
  signed_manifest.set_graph_key(graph_key.Raw());
  signed_manifest.set_tenant(tenant);
  signed_manifest.set_created_unix_ms(absl::ToUnixMillis(absl::Now()));
  key.Sign(signed_manifest);
  artifact.mutable_objects()->Swap(result.mutable_objects());
  return artifact;
}

v1::Artifact ForClient(const v1::Artifact& artifact, const std::vector<std::string>& known_objects, size_t inline_bytes,
                       std::vector<const v1::ObjectBytes*>& left_out) {
  v1::Artifact answer;
  *answer.mutable_signed_manifest() = artifact.signed_manifest();
  size_t used = 0;
  for (const v1::ObjectBytes& object : artifact.objects()) {
    if (std::find(known_objects.begin(), known_objects.end(), object.digest()) != known_objects.end()) continue;
    if (used + object.data().size() <= inline_bytes) {
      used += object.data().size();
      *answer.add_objects() = object;
    } else {
      left_out.push_back(&object);
    }
  }
  return answer;
}

}  // namespace stepone::server
