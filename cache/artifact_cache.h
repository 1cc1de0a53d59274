// Artifacts by graph key, with the whole material of the key compared on each hit.
#ifndef STEPONE_CACHE_ARTIFACT_CACHE_H_
#define STEPONE_CACHE_ARTIFACT_CACHE_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "cache/keyed_entry.h"
#include "cache/store.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone {

struct CachedArtifact {
  v1::Artifact artifact;  // with all its objects
  Tier tier = Tier::kMemory;
};

// Thread-safe. Neither owns the store nor checks signatures.
class ArtifactCache {
 public:
  // `store` must outlive the cache.
  explicit ArtifactCache(Store& store) : store_(store) {}

  // True if an entry has the key; the material is not compared.
  bool Contains(const Digest& graph_key) { return store_.Find({Kind::kArtifact, graph_key}).ok(); }

  // Any error is a miss; kNotFound is the usual one, kDataLoss says that a damaged entry was set aside.
  absl::StatusOr<CachedArtifact> Get(const KeyMaterial& material) { return Get(material.key, &material.canonical); }

  // As Get, for a key that was taken from a bundle: there is no material to compare, so the caller goes by who signed.
  absl::StatusOr<CachedArtifact> GetByKey(const Digest& graph_key) { return Get(graph_key, nullptr); }

  // Keeps `artifact` (REQUIRES: complete) unless there is one, and returns the one that everybody gets from now on:
  // the stored one if another writer was first, otherwise `artifact` itself, also when it could not be kept.
  // `overwrite`: ours replaces a stored one.
  v1::Artifact PutOrGet(const KeyMaterial& material, v1::Artifact artifact, bool overwrite);

  // kNotFound when the tenant has no entry.
  absl::StatusOr<NearestKey> Nearest(const KeyMaterial& material) {
    return FindNearest(store_, Kind::kArtifact, material);
  }

  // Hits that were refused because the material differed.
  uint64_t material_mismatches() const { return material_mismatches_.load(std::memory_order_relaxed); }
  // Artifacts that no tier could keep.
  uint64_t not_kept() const { return not_kept_.load(std::memory_order_relaxed); }

 private:
  absl::StatusOr<CachedArtifact> Get(const Digest& graph_key, const std::string* material);

  Store& store_;
  std::atomic<uint64_t> material_mismatches_{0};
  std::atomic<uint64_t> not_kept_{0};
};

}  // namespace stepone

#endif  // STEPONE_CACHE_ARTIFACT_CACHE_H_
