#include "cache/store_factory.h"

#include <utility>
#include <vector>

#include "cache/disk_store.h"
#include "cache/memory_store.h"
#include "cache/tiered_store.h"
#include "cache/verifying_store.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

std::string Mebibytes(uint64_t bytes) { return StrCat(bytes >> 20, " MiB"); }

std::string Describe(const StoreConfig& config, const DiskStore& disk) {
  if (disk.writable()) return StrCat("disk read-write at ", config.path, " up to ", Mebibytes(config.disk_bytes));
  const std::string mode = StrCat("disk read-only at ", config.path);
  return disk.read_only_reason().empty() ? mode : StrCat(mode, " (", disk.read_only_reason(), ")");
}

}  // namespace

absl::StatusOr<OpenedStore> OpenStore(StoreConfig config) {
  OpenedStore opened;
  std::vector<std::unique_ptr<Store>> tiers;
  tiers.push_back(std::make_unique<MemoryStore>(config.memory_bytes));
  opened.description = StrCat("store: memory up to ", Mebibytes(config.memory_bytes));
  if (!config.path.empty()) {
    DiskStoreOptions options;
    options.path = config.path;
    options.limit_bytes = config.disk_bytes;
    options.read_only = config.read_only;
    auto disk = DiskStore::Open(std::move(options));
    if (!disk.ok()) return disk.status();
    absl::StrAppend(&opened.description, "; ", Describe(config, **disk));
    tiers.push_back(*std::move(disk));
  } else {
    absl::StrAppend(&opened.description, "; no disk");
  }
  if (config.far != nullptr) {
    tiers.push_back(std::make_unique<VerifyingStore>(std::move(config.far)));
    absl::StrAppend(&opened.description, "; far store behind");
  }
  opened.store = std::make_unique<TieredStore>(std::move(tiers));
  return opened;
}

}  // namespace stepone
