#include "cache/kernel_cache.h"

#include <gtest/gtest.h>

#include "cache/memory_store.h"
#include "tests/unit/cache/store_test_support.h"

namespace stepone {
namespace {

std::string Text(const absl::StatusOr<Blob>& blob) { return blob.ok() ? **blob : blob.status().ToString(); }

TEST(KernelCacheTest, KeepsOneObjectForManyKeys) {
  MemoryStore store(1 << 20);
  KernelCache kernels(store);
  EXPECT_TRUE(absl::IsNotFound(kernels.Get("key", "").status()));
  ASSERT_TRUE(kernels.Put("key", "", MakeBlob("object")).ok());
  ASSERT_TRUE(kernels.Put("other key", "", MakeBlob("object")).ok());
  EXPECT_EQ(Text(kernels.Get("key", "")), "object");
  EXPECT_EQ(Text(kernels.Get("other key", "")), "object");
  EXPECT_EQ(store.Stats()[0].entries, 3u);
  EXPECT_TRUE(store.Find({Kind::kObject, Sha256("object")}).ok());
}

TEST(KernelCacheTest, ScopesAreApart) {
  MemoryStore store(1 << 20);
  KernelCache kernels(store);
  ASSERT_TRUE(kernels.Put("key", "team-a", MakeBlob("a's")).ok());
  EXPECT_TRUE(absl::IsNotFound(kernels.Get("key", "team-b").status()));
  EXPECT_TRUE(absl::IsNotFound(kernels.Get("key", "").status()));
  EXPECT_TRUE(absl::IsNotFound(kernels.Get("akey", "team-").status()));
  EXPECT_EQ(Text(kernels.Get("key", "team-a")), "a's");
}

TEST(KernelCacheTest, TheFirstWriterWins) {
  MemoryStore store(1 << 20);
  KernelCache kernels(store);
  ASSERT_TRUE(kernels.Put("key", "", MakeBlob("first")).ok());
  EXPECT_TRUE(kernels.Put("key", "", MakeBlob("second")).ok());
  EXPECT_EQ(Text(kernels.Get("key", "")), "first");
}

TEST(KernelCacheTest, AMappingThatOutlivesItsObjectIsReplaced) {
  MemoryStore store(1 << 20);
  KernelCache kernels(store);
  ASSERT_TRUE(kernels.Put("key", "", MakeBlob("first")).ok());
  // The same mapping without its object, as eviction leaves it.
  MemoryStore evicted(1 << 20);
  KernelCache after(evicted);
  ASSERT_TRUE(store
                  .ForEach(Kind::kKernel,
                           [&evicted](const Digest& key, std::string_view) {
                             EXPECT_TRUE(evicted.Put({Kind::kKernel, key}, MakeBlob(Sha256("first").Raw())).ok());
                             return true;
                           })
                  .ok());
  EXPECT_TRUE(absl::IsNotFound(after.Get("key", "").status()));
  ASSERT_TRUE(after.Put("key", "", MakeBlob("second")).ok());
  EXPECT_EQ(Text(after.Get("key", "")), "second");
}

}  // namespace
}  // namespace stepone
