#include "cache/bundle_cache.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "cache/memory_store.h"
#include "tests/unit/cache/store_test_support.h"

namespace stepone {
namespace {

KeyMaterial Key(std::string_view trace, std::string_view tenant = "team") {
  v1::Target target;
  target.set_isa("x86-64-v3");
  v1::CodeOptions options;
  options.set_backend("stepone");
  return TraceKey(trace, target, options, "compiler 1", tenant);
}

v1::SignedBundle Bundle(const std::string& bytes) {
  v1::SignedBundle bundle;
  bundle.set_bundle(bytes);
  bundle.set_created_unix_ms(7);
  return bundle;
}

TEST(TraceKeyTest, EverythingThatDecidesIsInTheKey) {
  v1::Target target, other_target;
  target.set_isa("x86-64-v3");
  other_target.set_isa("x86-64-v4");
  v1::CodeOptions options, other_options;
  options.set_backend("stepone");
  other_options.set_backend("inductor");
  std::set<Digest> keys;
  for (const KeyMaterial& material :
       {TraceKey("a\nb", target, options, "c", "t"), TraceKey("a\nc", target, options, "c", "t"),
        TraceKey("ab", target, options, "c", "t"), TraceKey("a\nb\n", target, options, "c", "t"),
        TraceKey("a\nb", other_target, options, "c", "t"), TraceKey("a\nb", target, other_options, "c", "t"),
        TraceKey("a\nb", target, options, "d", "t"), TraceKey("a\nb", target, options, "c", "u"),
        TraceKey("", target, options, "c", "t"), GraphKey(v1::Graph(), target, options, "c", "t")}) {
    EXPECT_TRUE(keys.insert(material.key).second);
  }
}

TEST(TraceKeyTest, IsDescribedLineByLine) {
  const auto description = DescribeKey(Key("torch 2.13.0\n0: placeholder").canonical);
  const std::pair<std::string, std::string> last("trace.line[1]", "0: placeholder");
  EXPECT_EQ(description.back(), last);
}

TEST(BundleCacheTest, TheFirstWriterWinsUnlessItIsOverwritten) {
  MemoryStore store(1 << 20);
  BundleCache bundles(store);
  EXPECT_TRUE(absl::IsNotFound(bundles.Get(Key("a")).status()));
  ASSERT_TRUE(bundles.Put(Key("a"), Bundle("first"), false).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(bundles.Put(Key("a"), Bundle("second"), false)));
  const auto first = bundles.Get(Key("a"));
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->bundle.bundle(), "first");
  EXPECT_EQ(first->bundle.created_unix_ms(), 7);
  ASSERT_TRUE(bundles.Put(Key("a"), Bundle("second"), true).ok());
  EXPECT_EQ(bundles.Get(Key("a"))->bundle.bundle(), "second");
}

TEST(BundleCacheTest, AnotherTraceWithTheSameKeyIsAMiss) {
  MemoryStore store(1 << 20);
  BundleCache bundles(store);
  KeyMaterial collision = Key("a");
  collision.canonical = Key("b").canonical;
  ASSERT_TRUE(bundles.Put(collision, Bundle("b's"), false).ok());
  EXPECT_TRUE(absl::IsNotFound(bundles.Get(Key("a")).status()));
}

TEST(BundleCacheTest, DamagedEntriesAreDataLoss) {
  MemoryStore store(1 << 20);
  BundleCache bundles(store);
  const std::string good = EncodeKeyedEntry(Key("a").canonical, Bundle("first").SerializeAsString());
  std::string sizes = good;
  sizes[7] = '\x7f';  // the material's size becomes absurd
  std::string packed = good;
  packed[18] = static_cast<char>(packed[18] ^ 0x55);
  for (const std::string& bytes :
       {std::string(), good.substr(0, 15), good.substr(0, 30), sizes, packed, good + '\xff'}) {
    ASSERT_TRUE(store.Put({Kind::kBundle, Key("a").key}, MakeBlob(bytes), {.overwrite = true}).ok());
    EXPECT_TRUE(absl::IsDataLoss(bundles.Get(Key("a")).status())) << bytes.size();
  }
}

TEST(BundleCacheTest, TheNearestIsOfTheSameTenant) {
  MemoryStore store(1 << 20);
  BundleCache bundles(store);
  ASSERT_TRUE(bundles.Put(Key("a\nb\nc", "other"), Bundle(""), false).ok());
  EXPECT_TRUE(absl::IsNotFound(bundles.Nearest(Key("a\nb\nc")).status()));
  ASSERT_TRUE(bundles.Put(Key("x\ny\nz"), Bundle(""), false).ok());
  ASSERT_TRUE(bundles.Put(Key("a\nb\nd"), Bundle(""), false).ok());
  const auto nearest = bundles.Nearest(Key("a\nb\nc"));
  ASSERT_TRUE(nearest.ok()) << nearest.status();
  EXPECT_EQ(nearest->key, Key("a\nb\nd").key);
  ASSERT_EQ(nearest->differences.size(), 1u);
  EXPECT_EQ(nearest->differences[0].nearest(), "d");
}

// Every kind has a place on disk, is found again after a restart, and counts against the limit.
TEST(AllKindsTest, SurviveARestartOfTheDiskStore) {
  char name[] = "/tmp/stepone-kinds-XXXXXX";
  const std::string folder = mkdtemp(name);
  {
    auto store = DiskStore::Open({.path = folder});
    ASSERT_TRUE(store.ok()) << store.status();
    for (Kind kind : kAllKinds) {
      const std::string text = StrCat("bytes of ", KindName(kind));
      ASSERT_TRUE((*store)->Put({kind, Sha256(text)}, MakeBlob(text)).ok()) << KindName(kind);
    }
  }
  auto store = DiskStore::Open({.path = folder});
  ASSERT_TRUE(store.ok()) << store.status();
  for (Kind kind : kAllKinds) {
    const std::string text = StrCat("bytes of ", KindName(kind));
    EXPECT_EQ(BytesOf((*store)->Get({kind, Sha256(text)})), text);
  }
  EXPECT_EQ((*store)->Stats()[0].entries, std::size(kAllKinds));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace stepone
