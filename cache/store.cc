#include "cache/store.h"

namespace stepone {

std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kArtifact:
      return "artifact";
    case Kind::kObject:
      return "object";
    case Kind::kKernel:
      return "kernel";
    case Kind::kBundle:
      return "bundle";
  }
  return "unknown";
}

absl::Status CheckPut(const EntryId& id, std::string_view bytes, const PutOptions& options) {
  if (options.label.size() > kMaxLabelBytes) return absl::InvalidArgumentError("the label is too long");
  if (id.kind == Kind::kObject && Sha256(bytes) != id.key) {
    return absl::InvalidArgumentError("an object's key is not the digest of its bytes");
  }
  return absl::OkStatus();
}

}  // namespace stepone
