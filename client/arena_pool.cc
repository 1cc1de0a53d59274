#include "client/arena_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace stepone::client {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallestArena = size_t{64} << 10;
std::atomic<uint64_t> next_id{1};

// A quarter more than asked for: graphs of one model differ a little, and growing costs all page faults again.
size_t Rounded(size_t bytes) {
  const size_t roomy = std::max(bytes + bytes / 4, kSmallestArena);
  const size_t unit = roomy >= 2 * kHugePage ? kHugePage : size_t{4096};
  return (roomy + unit - 1) / unit * unit;
}

}  // namespace

Arena::Arena(size_t bytes) : bytes_(bytes), id_(next_id.fetch_add(1)) {
  const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : size_t{4096};
  mapping_bytes_ = bytes + (alignment == kHugePage ? kHugePage : 0);
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    return;
  }
  const auto address = reinterpret_cast<uintptr_t>(mapping_);
  data_ = reinterpret_cast<char*>((address + alignment - 1) / alignment * alignment);
  if (alignment == kHugePage) madvise(data_, bytes, MADV_HUGEPAGE);  // advice: not every kernel offers it
}

Arena::~Arena() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

ArenaPool& ArenaPool::Global() {
  static ArenaPool& pool = *new ArenaPool;
  return pool;
}

std::unique_ptr<Arena> ArenaPool::Take(size_t bytes) {
  std::unique_ptr<Arena> outgrown;  // unmapped after the lock
  {
    absl::MutexLock lock(&mutex_);
    auto best = idle_.end();  // smallest that is large enough
    auto largest = idle_.end();
    for (auto it = idle_.begin(); it != idle_.end(); ++it) {
      if ((*it)->bytes() >= bytes && (best == idle_.end() || (*it)->bytes() < (*best)->bytes())) best = it;
      if (largest == idle_.end() || (*it)->bytes() > (*largest)->bytes()) largest = it;
    }
    const auto taken = best != idle_.end() ? best : largest;
    if (taken != idle_.end()) {
      std::unique_ptr<Arena> arena = std::move(*taken);
      idle_.erase(taken);
      counters_.idle_bytes -= static_cast<int64_t>(arena->bytes());
      if (arena->bytes() >= bytes) {
        ++counters_.hits;
        return arena;
      }
      outgrown = std::move(arena);
    }
    ++counters_.misses;
  }
  outgrown.reset();
  auto arena = std::make_unique<Arena>(Rounded(bytes));
  return arena->data() != nullptr ? std::move(arena) : nullptr;
}

void ArenaPool::Give(std::unique_ptr<Arena> arena) {
  absl::MutexLock lock(&mutex_);
  counters_.idle_bytes += static_cast<int64_t>(arena->bytes());
  idle_.push_back(std::move(arena));
}

ArenaPool::Counters ArenaPool::counters() const {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

void ArenaPool::ResetCounters() {
  absl::MutexLock lock(&mutex_);
  counters_.hits = 0;
  counters_.misses = 0;
}

}  // namespace stepone::client
