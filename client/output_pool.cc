#include "client/output_pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

namespace stepone::client {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kSmallestClass = 256;
constexpr size_t kHugePage = size_t{2} << 20;

OutputPool::Block SystemAllocate(size_t capacity) {
  const size_t alignment = capacity >= 2 * kHugePage ? kHugePage : kAlignment;
  const size_t rounded = (capacity + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
  if (data == nullptr) return {};
  if (alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);  // advice: not every kernel offers it
  return {data, capacity};
}

}  // namespace

size_t SizeClass(size_t bytes) {
  if (bytes <= kSmallestClass) return kSmallestClass;
  // The step between classes is a quarter of the power of two below.
  const size_t step = std::bit_floor(bytes - 1) / 4;
  return (bytes + step - 1) / step * step;
}

OutputPool::~OutputPool() { Trim(); }

OutputPool& OutputPool::Global() {
  static OutputPool& pool =
      *new OutputPool(static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE)) / 4);
  return pool;
}

OutputPool::Block OutputPool::Allocate(size_t bytes) {
  if (bytes == 0) return {};
  const size_t capacity = SizeClass(bytes);
  {
    absl::MutexLock lock(&mutex_);
    counters_.used_bytes += static_cast<int64_t>(capacity);
    const auto found = idle_.find(capacity);
    if (found != idle_.end() && !found->second.empty()) {
      const Block block = found->second.back().block;  // newest: most likely still in a cache
      found->second.pop_back();
      counters_.idle_bytes -= static_cast<int64_t>(capacity);
      ++counters_.hits;
      return block;
    }
    ++counters_.misses;
  }
  Block block = SystemAllocate(capacity);
  if (block.data == nullptr) {
    Trim();
    block = SystemAllocate(capacity);
  }
  if (block.data == nullptr) {
    absl::MutexLock lock(&mutex_);
    counters_.used_bytes -= static_cast<int64_t>(capacity);
  }
  return block;
}

void OutputPool::Release(Block block) {
  if (block.data == nullptr) return;
  std::vector<Block> evicted;
  {
    absl::MutexLock lock(&mutex_);
    counters_.used_bytes -= static_cast<int64_t>(block.capacity);
    counters_.idle_bytes += static_cast<int64_t>(block.capacity);
    idle_[block.capacity].push_back(Idle{block, ++clock_});
    while (counters_.idle_bytes > static_cast<int64_t>(max_idle_bytes_)) evicted.push_back(EvictOldest());
  }
  for (const Block& old : evicted) std::free(old.data);
}

OutputPool::Block OutputPool::EvictOldest() {
  auto oldest = idle_.end();
  for (auto it = idle_.begin(); it != idle_.end(); ++it) {
    if (it->second.empty()) continue;
    if (oldest == idle_.end() || it->second.front().released < oldest->second.front().released) oldest = it;
  }
  const Block block = oldest->second.front().block;
  oldest->second.erase(oldest->second.begin());
  counters_.idle_bytes -= static_cast<int64_t>(block.capacity);
  return block;
}

void OutputPool::Trim() {
  std::map<size_t, std::vector<Idle>> idle;
  {
    absl::MutexLock lock(&mutex_);
    idle.swap(idle_);
    counters_.idle_bytes = 0;
  }
  for (const auto& [capacity, blocks] : idle) {
    for (const Idle& entry : blocks) std::free(entry.block.data);
  }
}

OutputPool::Counters OutputPool::counters() const {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

void OutputPool::ResetCounters() {
  absl::MutexLock lock(&mutex_);
  counters_.hits = 0;
  counters_.misses = 0;
}

}  // namespace stepone::client
