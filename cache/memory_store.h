// A store in memory, bounded by bytes.
#ifndef STEPONE_CACHE_MEMORY_STORE_H_
#define STEPONE_CACHE_MEMORY_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cache/lru_index.h"
#include "cache/store.h"

namespace stepone {

// Least recently used entries go first. Thread-safe; never blocks for long. Bytes that a reader holds stay alive after
// their eviction, so the process may use more than the limit while responses are being sent.
class MemoryStore final : public Store {
 public:
  // Small stores are one shard, so that the limit means what it says; large ones are split to spread the locks.
  explicit MemoryStore(uint64_t limit_bytes);

  absl::StatusOr<EntryInfo> Find(const EntryId& id) override;
  absl::StatusOr<Entry> Get(const EntryId& id) override;
  // kResourceExhausted when the entry is larger than a shard.
  absl::Status Put(const EntryId& id, Blob bytes, const PutOptions& options = {}) override;
  absl::Status ForEach(Kind kind, const Visitor& visit) override;
  std::vector<StoreStats> Stats() const override;

 private:
  struct Held {
    Blob bytes;
    std::string label;
  };
  struct Shard {
    mutable absl::Mutex mutex;
    LruIndex<Held> index ABSL_GUARDED_BY(mutex);
    StoreStats stats ABSL_GUARDED_BY(mutex);
  };

  Shard& ShardOf(const EntryId& id) { return shards_[id.key.bytes[Digest::kSize - 1] % shards_.size()]; }

  const uint64_t limit_bytes_;
  std::vector<Shard> shards_;
};

}  // namespace stepone

#endif  // STEPONE_CACHE_MEMORY_STORE_H_
