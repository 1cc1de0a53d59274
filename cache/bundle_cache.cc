#include "cache/bundle_cache.h"

#include <utility>

namespace stepone {

absl::StatusOr<CachedBundle> BundleCache::Get(const KeyMaterial& material) {
  const auto bytes = store_.Get({Kind::kBundle, material.key});
  if (!bytes.ok()) return bytes.status();
  const auto entry = DecodeKeyedEntry(*bytes->bytes);
  if (!entry.ok()) return entry.status();
  if (entry->material != material.canonical) return absl::NotFoundError("another trace has the same key");
  CachedBundle cached;
  cached.tier = bytes->tier;
  if (!cached.bundle.ParseFromArray(entry->body.data(), static_cast<int>(entry->body.size()))) {
    return absl::DataLossError("a bundle's entry does not parse");
  }
  return cached;
}

absl::Status BundleCache::Put(const KeyMaterial& material, const v1::SignedBundle& bundle, bool overwrite) {
  return store_.Put({Kind::kBundle, material.key},
                    MakeBlob(EncodeKeyedEntry(material.canonical, bundle.SerializeAsString())),
                    {.overwrite = overwrite, .label = SketchKey(material.canonical)});
}

}  // namespace stepone
