// Native objects by kernel key.
#ifndef STEPONE_CACHE_KERNEL_CACHE_H_
#define STEPONE_CACHE_KERNEL_CACHE_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache/store.h"

namespace stepone {

// Keeps an object under its digest, and a mapping from the kernel key to the digest. Thread-safe.
class KernelCache {
 public:
  // `store` must outlive the cache.
  explicit KernelCache(Store& store) : store_(store) {}

  // Any error is a miss. `scope` separates tenants: equal scopes share; "" is shared by all.
  absl::StatusOr<Blob> Get(std::string_view kernel_key, std::string_view scope);
  // Keeps the object and the mapping; the first writer of a key wins.
  absl::Status Put(std::string_view kernel_key, std::string_view scope, Blob object);

 private:
  Store& store_;
};

}  // namespace stepone

#endif  // STEPONE_CACHE_KERNEL_CACHE_H_
