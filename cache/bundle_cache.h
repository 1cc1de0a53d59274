// Bundles by trace key, with the whole material of the key compared on each hit.
#ifndef STEPONE_CACHE_BUNDLE_CACHE_H_
#define STEPONE_CACHE_BUNDLE_CACHE_H_

#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "cache/keyed_entry.h"
#include "cache/store.h"
#include "stepone/v1/bundle.pb.h"

namespace stepone {

struct CachedBundle {
  v1::SignedBundle bundle;
  Tier tier = Tier::kMemory;
};

// Thread-safe. Neither owns the store nor checks signatures.
class BundleCache {
 public:
  // `store` must outlive the cache.
  explicit BundleCache(Store& store) : store_(store) {}

  // Any error is a miss; kNotFound is the usual one, kDataLoss says that a damaged entry was set aside.
  absl::StatusOr<CachedBundle> Get(const KeyMaterial& material);

  // kAlreadyExists when another writer was first and `overwrite` is false; otherwise as Store::Put.
  absl::Status Put(const KeyMaterial& material, const v1::SignedBundle& bundle, bool overwrite);

  // kNotFound when the tenant has no other entry.
  absl::StatusOr<NearestKey> Nearest(const KeyMaterial& material) {
    return FindNearest(store_, Kind::kBundle, material);
  }

 private:
  Store& store_;
};

}  // namespace stepone

#endif  // STEPONE_CACHE_BUNDLE_CACHE_H_
