// Scratch memory of running plans: one arena per run, kept between runs and shared by all plans of the process.
#ifndef STEPONE_CLIENT_ARENA_POOL_H_
#define STEPONE_CLIENT_ARENA_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace stepone::client {

// A block of page-aligned memory. Not thread-safe; owned by one run at a time.
class Arena {
 public:
  // `bytes` of anonymous memory, huge pages where the kernel gives them. Data is null when there is none.
  explicit Arena(size_t bytes);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  char* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // Names this arena among all that the process ever had; an address may come back, an id does not.
  uint64_t id() const { return id_; }

 private:
  void* mapping_ = nullptr;
  size_t mapping_bytes_ = 0;
  char* data_ = nullptr;
  const size_t bytes_;
  const uint64_t id_;
};

// Arenas that nobody uses now. As many exist as plans ever ran at the same time; forward and backward of a step take
// turns on one. Thread-safe.
class ArenaPool {
 public:
  struct Counters {
    int64_t hits = 0;
    int64_t misses = 0;
    int64_t idle_bytes = 0;
  };

  static ArenaPool& Global();

  // An arena of at least `bytes`; null when the system has no memory. Grows by dropping an idle one that is too small.
  std::unique_ptr<Arena> Take(size_t bytes);
  void Give(std::unique_ptr<Arena> arena);

  Counters counters() const;
  void ResetCounters();

 private:
  mutable absl::Mutex mutex_;
  std::vector<std::unique_ptr<Arena>> idle_ ABSL_GUARDED_BY(mutex_);
  Counters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_ARENA_POOL_H_
