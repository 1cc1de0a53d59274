#include "cache/kernel_cache.h"

#include <string>
#include <utility>

namespace stepone {
namespace {

// The store's key of a kernel key within a scope; the length keeps the two apart.
EntryId MappingId(std::string_view kernel_key, std::string_view scope) {
  Hasher hasher;
  std::string size;
  for (int shift = 0; shift < 64; shift += 8) size.push_back(static_cast<char>(scope.size() >> shift));
  hasher.Update(size);
  hasher.Update(scope);
  hasher.Update(kernel_key);
  return {Kind::kKernel, hasher.Finish()};
}

}  // namespace

absl::StatusOr<Blob> KernelCache::Get(std::string_view kernel_key, std::string_view scope) {
  auto mapping = store_.Get(MappingId(kernel_key, scope));
  if (!mapping.ok()) return mapping.status();
  const auto digest = Digest::FromRaw(*mapping->bytes);
  if (!digest) return absl::DataLossError("a kernel's mapping is no digest");
  auto object = store_.Get({Kind::kObject, *digest});
  if (!object.ok()) return object.status();
  return std::move(object->bytes);
}

absl::Status KernelCache::Put(std::string_view kernel_key, std::string_view scope, Blob object) {
  const Digest digest = Sha256(*object);
  // The object first, so that no mapping leads nowhere after a crash.
  absl::Status status = store_.Put({Kind::kObject, digest}, std::move(object));
  if (!status.ok() && !absl::IsAlreadyExists(status)) return status;
  // A mapping may outlive its object by eviction: then the same key is compiled again and may have another object.
  const EntryId mapping = MappingId(kernel_key, scope);
  const bool dangling = absl::IsNotFound(Get(kernel_key, scope).status());
  status = store_.Put(mapping, MakeBlob(digest.Raw()), {.overwrite = dangling, .label = ""});
  return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
}

}  // namespace stepone
