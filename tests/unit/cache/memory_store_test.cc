#include "cache/memory_store.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/unit/cache/store_test_support.h"

namespace stepone {
namespace {

TEST(MemoryStoreTest, FindGetPut) {
  MemoryStore store(1 << 20);
  const EntryId id = KernelId(1);
  EXPECT_TRUE(absl::IsNotFound(store.Find(id).status()));
  EXPECT_TRUE(absl::IsNotFound(store.Get(id).status()));
  ASSERT_TRUE(store.Put(id, MakeBlob("bytes"), {.overwrite = false, .label = "label"}).ok());
  EXPECT_EQ(store.Find(id)->size, 5u);
  const auto entry = store.Get(id);
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(*entry->bytes, "bytes");
  EXPECT_EQ(entry->label, "label");
  EXPECT_EQ(entry->tier, Tier::kMemory);
  const StoreStats stats = store.Stats()[0];
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.writes, 1u);
  EXPECT_EQ(stats.entries, 1u);
}

TEST(MemoryStoreTest, FirstWriterWinsUnlessAskedOtherwise) {
  MemoryStore store(1 << 20);
  const EntryId id = KernelId(1);
  ASSERT_TRUE(store.Put(id, MakeBlob("first")).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(store.Put(id, MakeBlob("second"))));
  EXPECT_EQ(BytesOf(store.Get(id)), "first");
  EXPECT_TRUE(store.Put(id, MakeBlob("third"), {.overwrite = true, .label = ""}).ok());
  EXPECT_EQ(BytesOf(store.Get(id)), "third");
}

TEST(MemoryStoreTest, KeepsTheLimitAndWhatIsUsed) {
  MemoryStore store(10000);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store.Put(KernelId(i), MakeBlob(Noise(1700))).ok());
  ASSERT_TRUE(store.Get(KernelId(0)).ok());
  ASSERT_TRUE(store.Put(KernelId(5), MakeBlob(Noise(1700))).ok());
  EXPECT_TRUE(store.Find(KernelId(0)).ok()) << "was used";
  EXPECT_TRUE(absl::IsNotFound(store.Find(KernelId(1)).status())) << "was not";
  const StoreStats stats = store.Stats()[0];
  EXPECT_EQ(stats.evictions, 1u);
  EXPECT_LE(stats.bytes, 10000u);
}

TEST(MemoryStoreTest, WhatIsTooLargeIsRefusedAndCounted) {
  MemoryStore store(1000);
  ASSERT_TRUE(store.Put(KernelId(1), MakeBlob("small")).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store.Put(KernelId(2), MakeBlob(std::string(1000, 'x')))));
  EXPECT_TRUE(store.Find(KernelId(1)).ok()) << "nothing was evicted for it";
  EXPECT_EQ(store.Stats()[0].failed_writes, 1u);
  // An overwrite that does not fit must not leave the old value behind.
  EXPECT_FALSE(store.Put(KernelId(1), MakeBlob(std::string(1000, 'x')), {.overwrite = true, .label = ""}).ok());
  EXPECT_FALSE(store.Find(KernelId(1)).ok());
}

TEST(MemoryStoreTest, BytesOutliveEviction) {
  MemoryStore store(1000);
  ASSERT_TRUE(store.Put(KernelId(1), MakeBlob(std::string(500, 'a'))).ok());
  const auto entry = store.Get(KernelId(1));
  ASSERT_TRUE(store.Put(KernelId(2), MakeBlob(std::string(500, 'b'))).ok());
  EXPECT_FALSE(store.Find(KernelId(1)).ok());
  EXPECT_EQ(*entry->bytes, std::string(500, 'a'));
}

TEST(MemoryStoreTest, ChecksWhatItIsGiven) {
  MemoryStore store(1 << 20);
  EXPECT_TRUE(absl::IsInvalidArgument(store.Put({Kind::kObject, Sha256("a")}, MakeBlob("b"))));
  EXPECT_TRUE(store.Put({Kind::kObject, Sha256("a")}, MakeBlob("a")).ok());
  const PutOptions long_label{.overwrite = false, .label = std::string(kMaxLabelBytes + 1, 'l')};
  EXPECT_TRUE(absl::IsInvalidArgument(store.Put(KernelId(1), MakeBlob("b"), long_label)));
}

TEST(MemoryStoreTest, ForEachVisitsOneKindNewestFirst) {
  MemoryStore store(1 << 20);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(store.Put(ArtifactId(i), MakeBlob("x"), {.overwrite = false, .label = StrCat(i)}).ok());
  }
  ASSERT_TRUE(store.Put(KernelId(9), MakeBlob("x"), {.overwrite = false, .label = "kernel"}).ok());
  std::string labels;
  EXPECT_TRUE(store
                  .ForEach(Kind::kArtifact,
                           [&labels](const Digest&, std::string_view label) {
                             labels.append(label);
                             return labels.size() < 2;
                           })
                  .ok());
  EXPECT_EQ(labels, "21");
}

TEST(MemoryStoreTest, ManyThreads) {
  MemoryStore store(uint64_t{64} << 20);  // sharded
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store] {
      for (uint64_t i = 0; i < 2000; ++i) {
        const EntryId id = KernelId(i % 300);
        const auto entry = store.Get(id);
        if (entry.ok()) {
          EXPECT_EQ(*entry->bytes, Noise(100, i % 300));
        } else {
          store.Put(id, MakeBlob(Noise(100, i % 300))).IgnoreError();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StoreStats stats = store.Stats()[0];
  EXPECT_EQ(stats.entries, 300u);
  EXPECT_EQ(stats.writes, 300u);
  EXPECT_EQ(stats.hits + stats.misses, 8000u);
}

}  // namespace
}  // namespace stepone
