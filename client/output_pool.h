// Memory for what a plan returns: blocks that are kept for the next step instead of being given back to the kernel.
//
// A training step frees and allocates the same sizes again and again. malloc() returns large blocks to the operating
// system, so that each step pays a page fault for every 4 KiB it writes; a kept block has its pages already.
#ifndef STEPONE_CLIENT_OUTPUT_POOL_H_
#define STEPONE_CLIENT_OUTPUT_POOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace stepone::client {

// Caches blocks by size class (four classes for each power of two). A block is handed out again only after Release().
// Thread-safe. Blocks must be released before the pool is destroyed; Global() never is.
class OutputPool {
 public:
  struct Block {
    void* data = nullptr;  // 64-byte aligned; null only for 0 bytes
    size_t capacity = 0;   // bytes, at least what was asked for
  };

  struct Counters {
    int64_t hits = 0;
    int64_t misses = 0;
    int64_t idle_bytes = 0;
    int64_t used_bytes = 0;
  };

  // Keeps at most `max_idle_bytes` of released blocks; beyond that the longest unused ones go back to the system.
  explicit OutputPool(size_t max_idle_bytes) : max_idle_bytes_(max_idle_bytes) {}
  OutputPool(const OutputPool&) = delete;
  OutputPool& operator=(const OutputPool&) = delete;
  ~OutputPool();

  // The process's pool; its limit is a quarter of the host's memory.
  static OutputPool& Global();

  // Contents are undefined. Data is null when the system has no memory.
  Block Allocate(size_t bytes);
  void Release(Block block);
  // Gives all idle blocks back to the system.
  void Trim();

  Counters counters() const;
  void ResetCounters();

 private:
  struct Idle {
    Block block;
    uint64_t released = 0;  // order of release
  };

  // Takes the block that was released first out of its class. REQUIRES: there is one.
  Block EvictOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t max_idle_bytes_;
  mutable absl::Mutex mutex_;
  std::map<size_t, std::vector<Idle>> idle_ ABSL_GUARDED_BY(mutex_);  // by capacity; the newest is last
  uint64_t clock_ ABSL_GUARDED_BY(mutex_) = 0;
  Counters counters_ ABSL_GUARDED_BY(mutex_);
};

// The size class that `bytes` falls into: the capacity of the block that Allocate() would return.
size_t SizeClass(size_t bytes);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_OUTPUT_POOL_H_
