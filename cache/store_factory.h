// Builds the tiers of a server's store from its configuration.
#ifndef STEPONE_CACHE_STORE_FACTORY_H_
#define STEPONE_CACHE_STORE_FACTORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cache/store.h"

namespace stepone {

struct StoreConfig {
  uint64_t memory_bytes = uint64_t{256} << 20;
  // Folder of the disk tier; empty for none. Created if need be.
  std::string path;
  uint64_t disk_bytes = uint64_t{10} << 30;
  // Never write below `path`. Without it, a folder that can't be written is opened read-only all the same, and
  // `description` says so.
  bool read_only = false;
  // A store behind memory and disk, which others share; null for none. Its bytes are verified on the way in.
  std::unique_ptr<Store> far;
};

struct OpenedStore {
  std::unique_ptr<Store> store;
  std::string description;  // one line for the log: tiers, mode, limits, path
};

// kFailedPrecondition: another process owns the folder. kPermissionDenied: it can be neither read nor created.
absl::StatusOr<OpenedStore> OpenStore(StoreConfig config);

}  // namespace stepone

#endif  // STEPONE_CACHE_STORE_FACTORY_H_
