#include "server/admission_queue.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stepone::server {
namespace {

using ::testing::ElementsAre;

AdmissionQueue::Entry Entry(uint64_t id, v1::Role role = v1::ROLE_FORWARD, const std::string& tenant = "t") {
  AdmissionQueue::Entry entry;
  entry.id = id;
  entry.role = role;
  entry.tenant = tenant;
  return entry;
}

std::vector<uint64_t> PopAll(AdmissionQueue& queue) {
  std::vector<uint64_t> ids;
  while (auto entry = queue.Pop()) ids.push_back(entry->id);
  return ids;
}

TEST(AdmissionQueue, FirstComeFirstServedWithinARole) {
  AdmissionQueue queue({});
  for (uint64_t id : {1, 2, 3}) ASSERT_TRUE(queue.Push(Entry(id)).ok());
  EXPECT_THAT(PopAll(queue), ElementsAre(1, 2, 3));
}

TEST(AdmissionQueue, ForwardThenBackwardThenOthers) {
  AdmissionQueue queue({});
  ASSERT_TRUE(queue.Push(Entry(1, v1::ROLE_INFERENCE)).ok());
  ASSERT_TRUE(queue.Push(Entry(2, v1::ROLE_BACKWARD)).ok());
  ASSERT_TRUE(queue.Push(Entry(3, v1::ROLE_FORWARD)).ok());
  EXPECT_THAT(PopAll(queue), ElementsAre(3, 2, 1));
}

TEST(AdmissionQueue, BlockedTrainersAndLowPrioritiesComeFirst) {
  AdmissionQueue queue({});
  AdmissionQueue::Entry background = Entry(1), urgent = Entry(2), blocking = Entry(3, v1::ROLE_BACKWARD);
  background.priority = 5;
  urgent.priority = -5;
  blocking.blocking = true;
  blocking.priority = 9;
  for (const auto& entry : {background, urgent, blocking}) ASSERT_TRUE(queue.Push(entry).ok());
  EXPECT_THAT(PopAll(queue), ElementsAre(3, 2, 1));
}

TEST(AdmissionQueue, ATenantWithFewerRunningJobsGoesFirst) {
  AdmissionQueue queue({});
  for (uint64_t id : {1, 2, 3}) ASSERT_TRUE(queue.Push(Entry(id, v1::ROLE_FORWARD, "big")).ok());
  ASSERT_TRUE(queue.Push(Entry(4, v1::ROLE_FORWARD, "small")).ok());
  EXPECT_EQ(queue.Pop()->id, 1u);
  EXPECT_EQ(queue.Pop()->id, 4u);
  EXPECT_EQ(queue.Pop()->id, 2u);
  queue.Finished("big");
  queue.Finished("big");
  ASSERT_TRUE(queue.Push(Entry(5, v1::ROLE_FORWARD, "small")).ok());
  EXPECT_EQ(queue.Pop()->id, 3u);
}

TEST(AdmissionQueue, RefusesWhatDoesNotFit) {
  AdmissionQueue queue({.max_length = 4, .max_tenant_share = 0.5});
  ASSERT_TRUE(queue.Push(Entry(1, v1::ROLE_FORWARD, "a")).ok());
  ASSERT_TRUE(queue.Push(Entry(2, v1::ROLE_FORWARD, "a")).ok());
  EXPECT_EQ(queue.Push(Entry(3, v1::ROLE_FORWARD, "a")).code(), absl::StatusCode::kResourceExhausted);
  ASSERT_TRUE(queue.Push(Entry(4, v1::ROLE_FORWARD, "b")).ok());
  ASSERT_TRUE(queue.Push(Entry(5, v1::ROLE_FORWARD, "b")).ok());
  EXPECT_EQ(queue.Push(Entry(6, v1::ROLE_FORWARD, "c")).code(), absl::StatusCode::kResourceExhausted);
  queue.PushBack(Entry(7, v1::ROLE_FORWARD, "a"));
  EXPECT_EQ(queue.size(), 5u);
}

TEST(AdmissionQueue, RaiseRemoveAndExpire) {
  AdmissionQueue queue({});
  AdmissionQueue::Entry late = Entry(2);
  late.deadline = absl::UnixEpoch() + absl::Seconds(10);
  ASSERT_TRUE(queue.Push(Entry(1)).ok());
  ASSERT_TRUE(queue.Push(late).ok());
  ASSERT_TRUE(queue.Push(Entry(3)).ok());
  EXPECT_TRUE(queue.Raise(3));
  EXPECT_FALSE(queue.Raise(9));
  EXPECT_THAT(queue.Order(), ElementsAre(3, 1, 2));
  EXPECT_THAT(queue.TakeExpired(absl::UnixEpoch() + absl::Seconds(9)), ElementsAre());
  EXPECT_THAT(queue.TakeExpired(absl::UnixEpoch() + absl::Seconds(10)), ElementsAre(2));
  EXPECT_TRUE(queue.Remove(1));
  EXPECT_FALSE(queue.Remove(1));
  EXPECT_THAT(PopAll(queue), ElementsAre(3));
}

}  // namespace
}  // namespace stepone::server
