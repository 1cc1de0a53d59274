#include "cache/memory_store.h"

#include <utility>

#include "proto/str_cat.h"

namespace stepone {
namespace {

constexpr uint64_t kShardedFrom = uint64_t{64} << 20;
constexpr size_t kShards = 8;
// What an entry costs beside its bytes: list node, map slot, blob header.
constexpr uint64_t kEntryOverhead = 256;

uint64_t Cost(const Blob& bytes, const std::string& label) { return bytes->size() + label.size() + kEntryOverhead; }

}  // namespace

MemoryStore::MemoryStore(uint64_t limit_bytes)
    : limit_bytes_(limit_bytes), shards_(limit_bytes >= kShardedFrom ? kShards : 1) {}

absl::StatusOr<EntryInfo> MemoryStore::Find(const EntryId& id) {
  Shard& shard = ShardOf(id);
  absl::MutexLock lock(&shard.mutex);
  const auto* item = shard.index.Find(id);
  if (item == nullptr) return absl::NotFoundError("not in memory");
  return EntryInfo{item->value.bytes->size(), Tier::kMemory};
}

absl::StatusOr<Entry> MemoryStore::Get(const EntryId& id) {
  Shard& shard = ShardOf(id);
  absl::MutexLock lock(&shard.mutex);
  const Held* held = shard.index.Touch(id);
  if (held == nullptr) {
    ++shard.stats.misses;
    return absl::NotFoundError("not in memory");
  }
  ++shard.stats.hits;
  return Entry{held->bytes, held->label, Tier::kMemory};
}

absl::Status MemoryStore::Put(const EntryId& id, Blob bytes, const PutOptions& options) {
  if (absl::Status status = CheckPut(id, *bytes, options); !status.ok()) return status;
  const uint64_t cost = Cost(bytes, options.label);
  const uint64_t shard_limit = limit_bytes_ / shards_.size();
  Shard& shard = ShardOf(id);
  std::vector<LruIndex<Held>::Item> evicted;  // freed after the lock is
  absl::MutexLock lock(&shard.mutex);
  if (!options.overwrite && shard.index.Contains(id)) return absl::AlreadyExistsError("in memory already");
  if (cost > shard_limit) {
    // An old value must not outlive the one that should have replaced it.
    shard.index.Remove(id);
    ++shard.stats.failed_writes;
    shard.stats.last_error = StrCat("an entry of ", bytes->size(), " bytes does not fit in memory");
    return absl::ResourceExhaustedError(shard.stats.last_error);
  }
  shard.index.Put(id, cost, Held{std::move(bytes), options.label});
  ++shard.stats.writes;
  evicted = shard.index.EvictTo(shard_limit);
  shard.stats.evictions += evicted.size();
  return absl::OkStatus();
}

absl::Status MemoryStore::ForEach(Kind kind, const Visitor& visit) {
  for (Shard& shard : shards_) {
    absl::MutexLock lock(&shard.mutex);
    for (const auto& item : shard.index.order()) {
      if (item.id.kind == kind && !visit(item.id.key, item.value.label)) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

std::vector<StoreStats> MemoryStore::Stats() const {
  StoreStats total;
  total.name = "memory";
  total.limit_bytes = limit_bytes_;
  for (const Shard& shard : shards_) {
    absl::MutexLock lock(&shard.mutex);
    total.hits += shard.stats.hits;
    total.misses += shard.stats.misses;
    total.writes += shard.stats.writes;
    total.failed_writes += shard.stats.failed_writes;
    total.evictions += shard.stats.evictions;
    total.entries += shard.index.size();
    total.bytes += shard.index.bytes();
    if (!shard.stats.last_error.empty()) total.last_error = shard.stats.last_error;
  }
  return {total};
}

}  // namespace stepone
