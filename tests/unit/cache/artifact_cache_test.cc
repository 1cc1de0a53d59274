#include "cache/artifact_cache.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cache/memory_store.h"
#include "cache/tiered_store.h"
#include "tests/unit/cache/store_test_support.h"

namespace stepone {
namespace {

// A graph of `ops` relu calls over a vector of `size` elements.
v1::Graph SomeGraph(int64_t size, int ops = 3) {
  v1::Graph graph;
  graph.set_role(v1::ROLE_FORWARD);
  for (int i = 0; i <= ops; ++i) {
    v1::TensorType* type = graph.add_values()->mutable_tensor();
    type->set_dtype(v1::DTYPE_FLOAT32);
    type->add_sizes()->set_value(size);
    type->add_strides()->set_value(1);
    type->mutable_device()->set_type("cpu");
  }
  graph.add_inputs(0);
  for (int i = 0; i < ops; ++i) {
    v1::Node* node = graph.add_nodes();
    node->set_op("aten.relu.default");
    v1::Argument* argument = node->add_arguments();
    argument->set_name("self");
    argument->set_value(static_cast<uint32_t>(i));
    node->add_results(static_cast<uint32_t>(i + 2));
  }
  graph.add_outputs()->set_value(static_cast<uint32_t>(ops));
  return graph;
}

KeyMaterial Key(const v1::Graph& graph, const std::string& tenant = "", const std::string& isa = "x86-64-v3") {
  v1::Target target;
  target.set_device_type("cpu");
  target.set_isa(isa);
  v1::CodeOptions options;
  options.set_mode(v1::MODE_DEFAULT);
  return GraphKey(graph, target, options, "compiler 1", tenant);
}

v1::Artifact SomeArtifact(const std::string& text) {
  v1::Artifact artifact;
  v1::Manifest manifest;
  v1::ObjectRef* ref = manifest.add_objects();
  ref->set_digest(Sha256(text).Raw());
  ref->set_size_bytes(text.size());
  artifact.mutable_signed_manifest()->set_manifest(manifest.SerializeAsString());
  v1::ObjectBytes* object = artifact.add_objects();
  object->set_digest(ref->digest());
  object->set_data(text);
  return artifact;
}

std::string TextOf(const absl::StatusOr<CachedArtifact>& found) {
  return found.ok() ? found->artifact.objects(0).data() : found.status().ToString();
}

TEST(ArtifactCacheTest, GetAfterPut) {
  MemoryStore store(1 << 20);
  ArtifactCache cache(store);
  const KeyMaterial key = Key(SomeGraph(8));
  EXPECT_FALSE(cache.Contains(key.key));
  EXPECT_TRUE(absl::IsNotFound(cache.Get(key).status()));
  EXPECT_EQ(cache.PutOrGet(key, SomeArtifact("ours"), false).objects(0).data(), "ours");
  EXPECT_TRUE(cache.Contains(key.key));
  EXPECT_EQ(TextOf(cache.Get(key)), "ours");
  EXPECT_EQ(cache.Get(key)->tier, Tier::kMemory);
}

TEST(ArtifactCacheTest, EverybodyGetsTheFirstWritersBytes) {
  MemoryStore store(1 << 20);
  ArtifactCache cache(store);
  const KeyMaterial key = Key(SomeGraph(8));
  cache.PutOrGet(key, SomeArtifact("first"), false);
  EXPECT_EQ(cache.PutOrGet(key, SomeArtifact("second"), false).objects(0).data(), "first");
  EXPECT_EQ(cache.PutOrGet(key, SomeArtifact("third"), true).objects(0).data(), "third");
  EXPECT_EQ(TextOf(cache.Get(key)), "third");
}

TEST(ArtifactCacheTest, WhatCannotBeKeptIsStillServed) {
  MemoryStore store(10);
  ArtifactCache cache(store);
  EXPECT_EQ(cache.PutOrGet(Key(SomeGraph(8)), SomeArtifact("ours"), false).objects(0).data(), "ours");
  EXPECT_EQ(cache.not_kept(), 1u);
}

// B09: a hash cut to 8 bits collides all the time; every answer must be the right one.
TEST(ArtifactCacheTest, B09AHashIsNoIdentity) {
  MemoryStore store(64 << 20);
  ArtifactCache cache(store);
  constexpr int kGraphs = 2000;
  size_t hits = 0;
  std::set<uint8_t> keys;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kGraphs; ++i) {
      KeyMaterial key = Key(SomeGraph(i + 1));
      Digest cut;
      cut.bytes[0] = key.key.bytes[0];
      keys.insert(cut.bytes[0]);
      key.key = cut;
      const auto found = cache.Get(key);
      if (found.ok()) {
        ++hits;
        ASSERT_EQ(TextOf(found), StrCat("artifact ", i));
      } else {
        ASSERT_TRUE(absl::IsNotFound(found.status())) << found.status();
        ASSERT_EQ(cache.PutOrGet(key, SomeArtifact(StrCat("artifact ", i)), false).objects(0).data(),
                  StrCat("artifact ", i));
      }
    }
  }
  EXPECT_GT(keys.size(), 200u);
  EXPECT_EQ(hits, keys.size()) << "the first graph of each key hits in the second round";
  EXPECT_GE(cache.material_mismatches(), 2 * (kGraphs - keys.size()));
}

using ArtifactCacheDiskTest = StoreFolderTest;

TEST_F(ArtifactCacheDiskTest, DamageOnDiskIsReplacedByTheNextCompile) {
  auto disk = Open();
  ArtifactCache cache(*disk);
  const KeyMaterial key = Key(SomeGraph(8));
  cache.PutOrGet(key, SomeArtifact("good"), false);
  std::filesystem::resize_file(PathOf({Kind::kArtifact, key.key}), 100);
  EXPECT_TRUE(absl::IsDataLoss(cache.Get(key).status()));
  EXPECT_EQ(cache.PutOrGet(key, SomeArtifact("again"), false).objects(0).data(), "again");
  EXPECT_EQ(TextOf(cache.Get(key)), "again");
}

TEST_F(ArtifactCacheDiskTest, DamageFoundWhilePuttingIsReplacedToo) {
  auto disk = Open();
  ArtifactCache cache(*disk);
  const KeyMaterial key = Key(SomeGraph(8));
  cache.PutOrGet(key, SomeArtifact("good"), false);
  std::filesystem::resize_file(PathOf({Kind::kArtifact, key.key}), 100);
  EXPECT_EQ(cache.PutOrGet(key, SomeArtifact("again"), false).objects(0).data(), "again");
  EXPECT_EQ(TextOf(cache.Get(key)), "again");
  EXPECT_EQ(cache.not_kept(), 0u);
}

TEST_F(ArtifactCacheDiskTest, NearestIsFoundAfterReopening) {
  {
    auto disk = Open();
    ArtifactCache cache(*disk);
    cache.PutOrGet(Key(SomeGraph(8, 3)), SomeArtifact("a"), false);
    cache.PutOrGet(Key(SomeGraph(8, 40)), SomeArtifact("b"), false);
    cache.PutOrGet(Key(SomeGraph(8, 40), "stranger"), SomeArtifact("c"), false);
  }
  auto disk = Open();
  ArtifactCache cache(*disk);
  const auto nearest = cache.Nearest(Key(SomeGraph(8, 40), "", "x86-64-v4"));
  ASSERT_TRUE(nearest.ok()) << nearest.status();
  EXPECT_EQ(nearest->key, Key(SomeGraph(8, 40)).key);
  ASSERT_EQ(nearest->differences.size(), 1u);
  EXPECT_EQ(nearest->differences[0].field(), "target.isa");
  EXPECT_EQ(nearest->differences[0].requested(), "x86-64-v4");
  EXPECT_EQ(nearest->differences[0].nearest(), "x86-64-v3");
  EXPECT_TRUE(absl::IsNotFound(cache.Nearest(Key(SomeGraph(8), "nobody")).status()));
}

TEST(ArtifactCacheTest, OneWinnerAmongManyThreads) {
  MemoryStore store(1 << 20);
  ArtifactCache cache(store);
  const KeyMaterial key = Key(SomeGraph(8));
  std::vector<std::string> results(8);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back(
        [&, t] { results[t] = cache.PutOrGet(key, SomeArtifact(StrCat("by ", t)), false).objects(0).data(); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, results[0]);
  EXPECT_EQ(TextOf(cache.Get(key)), results[0]);
}

}  // namespace
}  // namespace stepone
