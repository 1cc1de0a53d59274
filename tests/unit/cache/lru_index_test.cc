#include "cache/lru_index.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "proto/str_cat.h"

namespace stepone {
namespace {

EntryId Id(char name) { return {Kind::kObject, Sha256(std::string(1, name))}; }

// A script of steps: "+a3" puts a with 3 bytes, "?a" uses it, "-a" removes it, "!7" evicts to 7 bytes. `order` is what
// is left, most recently used first, and `evicted` what was evicted, in order.
struct Script {
  const char* name;
  std::vector<std::string> steps;
  std::string order;
  std::string evicted;
  uint64_t bytes;
};

class LruScriptTest : public testing::TestWithParam<Script> {};

TEST_P(LruScriptTest, LeavesTheRightEntries) {
  const Script& script = GetParam();
  LruIndex<char> index;
  std::string evicted;
  for (const std::string& step : script.steps) {
    const EntryId id = Id(step[1]);
    if (step[0] == '+') index.Put(id, static_cast<uint64_t>(std::stoi(step.substr(2))), step[1]);
    if (step[0] == '?') index.Touch(id);
    if (step[0] == '-') index.Remove(id);
    if (step[0] == '!') {
      for (const auto& item : index.EvictTo(static_cast<uint64_t>(std::stoi(step.substr(1))))) evicted += item.value;
    }
  }
  std::string order;
  for (const auto& item : index.order()) order += item.value;
  EXPECT_EQ(order, script.order);
  EXPECT_EQ(evicted, script.evicted);
  EXPECT_EQ(index.bytes(), script.bytes);
  EXPECT_EQ(index.size(), script.order.size());
}

INSTANTIATE_TEST_SUITE_P(All, LruScriptTest,
                         testing::Values(Script{"Empty", {"!0", "-a", "?a"}, "", "", 0},
                                         Script{"NewestFirst", {"+a1", "+b1", "+c1"}, "cba", "", 3},
                                         Script{"EvictsOldest", {"+a1", "+b1", "+c1", "!2"}, "cb", "a", 2},
                                         Script{"UseProtects", {"+a1", "+b1", "+c1", "?a", "!2"}, "ac", "b", 2},
                                         Script{
                                             "UseOfAStrangerChangesNothing", {"+a1", "+b1", "?z", "!1"}, "b", "a", 1},
                                         Script{"ReplacingCountsOnce", {"+a5", "+b1", "+a2"}, "ab", "", 3},
                                         Script{"ReplacingProtects", {"+a1", "+b1", "+a1", "!1"}, "a", "b", 1},
                                         Script{"RemovedIsNotEvicted", {"+a1", "+b1", "-a", "!0"}, "", "b", 0},
                                         Script{"LargeOnePushesOutMany", {"+a3", "+b3", "+c9", "!10"}, "c", "ab", 9},
                                         Script{"ExactlyTheLimitStays", {"+a4", "+b6", "!10"}, "ba", "", 10},
                                         Script{"EvictToNothing", {"+a4", "+b6", "!0"}, "", "ab", 0},
                                         Script{"EmptyEntriesGoInTheirTurn", {"+a0", "+b5", "!4"}, "", "ab", 0},
                                         Script{"RemoveAndPutAgain", {"+a1", "-a", "+a2", "?a"}, "a", "", 2}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LruIndexTest, KindsAreNameSpaces) {
  LruIndex<int> index;
  const Digest key = Sha256("same");
  index.Put({Kind::kObject, key}, 1, 1);
  index.Put({Kind::kKernel, key}, 2, 2);
  ASSERT_NE(index.Touch({Kind::kObject, key}), nullptr);
  EXPECT_EQ(*index.Touch({Kind::kObject, key}), 1);
  EXPECT_EQ(index.Find({Kind::kKernel, key})->bytes, 2u);
  EXPECT_FALSE(index.Contains({Kind::kArtifact, key}));
}

TEST(LruIndexTest, RemoveGivesTheValueBack) {
  LruIndex<std::string> index;
  index.Put(Id('a'), 3, "value");
  const auto item = index.Remove(Id('a'));
  ASSERT_TRUE(item);
  EXPECT_EQ(item->value, "value");
  EXPECT_FALSE(index.Remove(Id('a')));
  EXPECT_FALSE(index.EvictOldest());
}

}  // namespace
}  // namespace stepone
