#include "cache/artifact_cache.h"

#include <utility>

#include "proto/artifact_file.h"

namespace stepone {

absl::StatusOr<CachedArtifact> ArtifactCache::Get(const Digest& graph_key, const std::string* material) {
  auto bytes = store_.Get({Kind::kArtifact, graph_key});
  if (!bytes.ok()) return bytes.status();
  const auto entry = DecodeKeyedEntry(*bytes->bytes);
  if (!entry.ok()) return entry.status();
  if (material != nullptr && entry->material != *material) {
    material_mismatches_.fetch_add(1, std::memory_order_relaxed);
    return absl::NotFoundError("another request has the same key");
  }
  auto artifact = DecodeArtifactFile(entry->body);
  if (!artifact.ok()) return artifact.status();
  return CachedArtifact{*std::move(artifact), bytes->tier};
}

v1::Artifact ArtifactCache::PutOrGet(const KeyMaterial& material, v1::Artifact artifact, bool overwrite) {
  const Blob entry = MakeBlob(EncodeKeyedEntry(material.canonical, EncodeArtifactFile(artifact)));
  const EntryId id{Kind::kArtifact, material.key};
  PutOptions options{.overwrite = overwrite, .label = SketchKey(material.canonical)};
  absl::Status status = store_.Put(id, entry, options);
  if (absl::IsAlreadyExists(status)) {
    auto first = Get(material);
    if (first.ok()) return std::move(first->artifact);
    // What is there is damaged, has just been evicted, or belongs to another request with the same key.
    options.overwrite = absl::IsDataLoss(first.status());
    status = store_.Put(id, entry, options);
  }
  if (!status.ok()) not_kept_.fetch_add(1, std::memory_order_relaxed);
  return artifact;
}

}  // namespace stepone
