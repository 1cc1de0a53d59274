#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "client/arena_pool.h"
#include "client/output_pool.h"

namespace stepone::client {
namespace {

TEST(SizeClassTest, HoldsTheRequestAndWastesAtMostAQuarter) {
  for (size_t bytes = 1; bytes < (size_t{1} << 24); bytes += 1 + bytes / 7) {
    const size_t capacity = SizeClass(bytes);
    EXPECT_GE(capacity, bytes);
    EXPECT_LE(capacity, std::max<size_t>(256, bytes + bytes / 4 + 1)) << bytes;
    EXPECT_EQ(SizeClass(capacity), capacity);
  }
  EXPECT_EQ(SizeClass(1 << 20), size_t{1} << 20);
}

TEST(OutputPoolTest, HandsABlockOutAgainOnlyAfterItsRelease) {
  OutputPool pool(1 << 20);
  const OutputPool::Block first = pool.Allocate(5000);
  const OutputPool::Block second = pool.Allocate(5000);
  EXPECT_NE(first.data, second.data);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data) % 64, 0u);
  pool.Release(first);
  const OutputPool::Block third = pool.Allocate(4999);  // same class
  EXPECT_EQ(third.data, first.data);
  EXPECT_EQ(pool.counters().hits, 1);
  EXPECT_EQ(pool.counters().misses, 2);
  EXPECT_EQ(pool.counters().idle_bytes, 0);
  pool.Release(second);
  pool.Release(third);
  EXPECT_EQ(pool.counters().used_bytes, 0);
}

TEST(OutputPoolTest, GivesTheLongestUnusedBlocksBackAboveItsLimit) {
  OutputPool pool(3 * 4096);
  const OutputPool::Block old = pool.Allocate(4096);
  std::vector<OutputPool::Block> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(pool.Allocate(4096));
  pool.Release(old);
  for (const OutputPool::Block& block : blocks) pool.Release(block);
  EXPECT_EQ(pool.counters().idle_bytes, 3 * 4096);
  std::set<void*> kept;
  for (int i = 0; i < 3; ++i) kept.insert(pool.Allocate(4096).data);
  EXPECT_EQ(pool.counters().hits, 3);
  for (const OutputPool::Block& block : blocks) EXPECT_TRUE(kept.contains(block.data));
  for (void* data : kept) pool.Release({data, 4096});
}

TEST(OutputPoolTest, NothingForZeroBytes) {
  OutputPool pool(1 << 20);
  EXPECT_EQ(pool.Allocate(0).data, nullptr);
  pool.Release({});
  EXPECT_EQ(pool.counters().misses, 0);
}

TEST(OutputPoolTest, ThreadsNeverShareABlock) {
  OutputPool pool(1 << 22);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 2000; ++i) {
        const OutputPool::Block block = pool.Allocate(256 << (i % 6));
        std::memset(block.data, t + 1, block.capacity);
        const auto* bytes = static_cast<const char*>(block.data);
        for (size_t b = 0; b < block.capacity; b += 61) ASSERT_EQ(bytes[b], t + 1);
        pool.Release(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.counters().used_bytes, 0);
}

TEST(ArenaPoolTest, ReusesTheSmallestThatFits) {
  ArenaPool pool;
  std::unique_ptr<Arena> small = pool.Take(100 << 10), large = pool.Take(10 << 20);
  const uint64_t small_id = small->id(), large_id = large->id();
  pool.Give(std::move(large));
  pool.Give(std::move(small));
  std::unique_ptr<Arena> again = pool.Take(90 << 10);
  EXPECT_EQ(again->id(), small_id);
  EXPECT_EQ(pool.Take(90 << 10)->id(), large_id);
  EXPECT_EQ(pool.counters().hits, 2);
}

TEST(ArenaPoolTest, GrowsInsteadOfCollecting) {
  ArenaPool pool;
  pool.Give(pool.Take(1 << 20));
  std::unique_ptr<Arena> grown = pool.Take(8 << 20);
  EXPECT_GE(grown->bytes(), size_t{8} << 20);
  EXPECT_EQ(pool.counters().idle_bytes, 0);  // the one that was too small is gone
  std::memset(grown->data(), 1, grown->bytes());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(grown->data()) % (2 << 20), 0u);
}

}  // namespace
}  // namespace stepone::client
