// Parts of the server that need only a few cases each: failures remembered, pins, channel, authenticator, metrics,
// locks.
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/authenticator.h"
#include "server/failure_memory.h"
#include "server/file_lock.h"
#include "server/job_pins.h"
#include "server/metrics.h"
#include "server/reproducer_store.h"
#include "server/worker_channel.h"
#include "stepone/v1/worker.pb.h"
#include "tests/testlib/sample_request.h"

namespace stepone::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string TempPath(const std::string& name) {
  return ::testing::TempDir() + "/stepone_server_" + std::to_string(getpid()) + "_" + name;
}

TEST(FailureMemory, ForgetsAfterItsTimeAndWhenFull) {
  FailureMemory memory(absl::Seconds(10), 2);
  const absl::Time t0 = absl::UnixEpoch();
  const Digest a = Sha256("a"), b = Sha256("b"), c = Sha256("c");
  memory.Remember(a, absl::InvalidArgumentError("first text"), t0);
  ASSERT_TRUE(memory.Recall(a, t0 + absl::Seconds(9)).has_value());
  EXPECT_EQ(memory.Recall(a, t0 + absl::Seconds(9))->message(), "first text");
  EXPECT_FALSE(memory.Recall(b, t0).has_value());
  EXPECT_FALSE(memory.Recall(a, t0 + absl::Seconds(10)).has_value());

  memory.Remember(a, absl::InternalError("a"), t0);
  memory.Remember(b, absl::InternalError("b"), t0);
  memory.Remember(c, absl::InternalError("c"), t0);
  EXPECT_FALSE(memory.Recall(a, t0).has_value());
  EXPECT_TRUE(memory.Recall(b, t0).has_value());
  memory.Forget(b);
  EXPECT_FALSE(memory.Recall(b, t0).has_value());
  EXPECT_TRUE(memory.Recall(c, t0).has_value());
}

TEST(JobPins, KeepsTheFirstBytesAndDropsTheLongestUnused) {
  auto artifact = [](char fill) {
    v1::Artifact a;
    a.mutable_signed_manifest()->set_manifest(std::string(1000, fill));
    return std::make_shared<const v1::Artifact>(a);
  };
  JobPins pins(2800);
  const Digest a = Sha256("a"), b = Sha256("b");
  const auto first = artifact('1');
  pins.Pin("job", a, first);
  EXPECT_EQ(pins.Find("job", a), first);
  EXPECT_EQ(pins.Find("other", a), nullptr);
  pins.Pin("job", b, artifact('2'));
  EXPECT_EQ(pins.Find("job", a), first);  // used last
  pins.Pin("other", a, artifact('3'));
  EXPECT_EQ(pins.Find("job", b), nullptr);
  EXPECT_EQ(pins.Find("job", a), first);
}

class WorkerChannelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto pair = WorkerChannel::CreatePair();
    ASSERT_TRUE(pair.ok());
    left_fd_ = pair->first.get();
    left_.emplace(std::move(pair->first), size_t{8} << 20);
    right_.emplace(std::move(pair->second), size_t{8} << 20);
  }
  int left_fd_ = -1;
  std::optional<WorkerChannel> left_, right_;
};

TEST_F(WorkerChannelTest, CarriesMessagesLargerThanTheSocketBuffer) {
  v1::FromWorker message;
  message.mutable_result()->add_objects()->set_data(std::string(4 << 20, 'x'));
  std::thread writer([&] { EXPECT_TRUE(left_->Write(message, absl::InfiniteFuture()).ok()); });
  v1::FromWorker read;
  EXPECT_TRUE(right_->Read(read, absl::InfiniteFuture()).ok());
  writer.join();
  EXPECT_EQ(read.SerializeAsString(), message.SerializeAsString());
}

TEST_F(WorkerChannelTest, SaysWhyThereIsNoMessage) {
  v1::FromWorker read;
  EXPECT_EQ(right_->Read(read, absl::Now()).code(), absl::StatusCode::kDeadlineExceeded);
  // A deadline that is past is no reason not to look.
  ASSERT_TRUE(left_->Write(v1::FromWorker(), absl::InfiniteFuture()).ok());
  EXPECT_TRUE(right_->Read(read, absl::InfinitePast()).ok());
  ASSERT_EQ(write(left_fd_, "\xff\xff\xff\xff", 4), 4);
  EXPECT_EQ(right_->Read(read, absl::InfiniteFuture()).code(), absl::StatusCode::kDataLoss);
}

TEST_F(WorkerChannelTest, AFrameThatIsNoMessageIsDataLoss) {
  ASSERT_EQ(write(left_fd_, "\x02\x00\x00\x00\xff\xff", 6), 6);
  v1::FromWorker read;
  EXPECT_EQ(right_->Read(read, absl::InfiniteFuture()).code(), absl::StatusCode::kDataLoss);
}

TEST_F(WorkerChannelTest, AClosedPeerIsUnavailable) {
  left_.reset();
  v1::FromWorker message;
  EXPECT_EQ(right_->Read(message, absl::InfiniteFuture()).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(right_->Write(message, absl::InfiniteFuture()).code(), absl::StatusCode::kUnavailable);
}

TEST_F(WorkerChannelTest, TooLargeAMessageIsRefusedByTheSender) {
  v1::FromWorker message;
  message.mutable_result()->add_objects()->set_data(std::string(9 << 20, 'x'));
  EXPECT_EQ(left_->Write(message, absl::InfiniteFuture()).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Authenticator, TokensNameTheirTenant) {
  const std::string path = TempPath("tokens");
  std::ofstream(path) << "# comment\nsecret-a a\nsecret-b b\n";
  chmod(path.c_str(), 0600);
  Authenticator authenticator({}, path);
  ASSERT_TRUE(authenticator.Load().ok());
  EXPECT_TRUE(authenticator.Check("Bearer secret-a", "a").ok());
  EXPECT_EQ(authenticator.Check("Bearer secret-a", "b").code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(authenticator.Check("Bearer guess", "a").code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(authenticator.Check("", "a").code(), absl::StatusCode::kUnauthenticated);

  std::ofstream(path) << "only-a-token\n";
  EXPECT_EQ(authenticator.Load().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(authenticator.Check("Bearer secret-a", "a").ok());  // the old ones stay valid
  chmod(path.c_str(), 0644);
  EXPECT_EQ(authenticator.Load().code(), absl::StatusCode::kPermissionDenied);
  unlink(path.c_str());
}

TEST(Authenticator, OnlyListedTenantsMayAsk) {
  Authenticator anybody({}, ""), listed({"a"}, "");
  EXPECT_TRUE(anybody.Check("", "x").ok());
  EXPECT_TRUE(listed.Check("", "a").ok());
  EXPECT_EQ(listed.Check("", "x").code(), absl::StatusCode::kPermissionDenied);
}

TEST(Metrics, LabelsAreBounded) {
  Metrics metrics;
  for (int i = 0; i < 1000; ++i) metrics.requests.Add("invented" + std::to_string(i));
  metrics.requests.Add("Compile");
  EXPECT_EQ(metrics.requests.Value("other"), 1000);
  const std::string text = metrics.Text();
  EXPECT_THAT(text, HasSubstr("stepone_requests_total{rpc=\"Compile\"} 1"));
  EXPECT_THAT(text, Not(HasSubstr("invented")));
}

TEST(FileLock, OneOwner) {
  const std::string path = TempPath("lock");
  auto first = TakeFileLock(path);
  ASSERT_TRUE(first.ok());
  const absl::Status second = TakeFileLock(path).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.message()), HasSubstr(std::to_string(getpid())));
  first->Reset();
  EXPECT_TRUE(TakeFileLock(path).ok());
  unlink(path.c_str());
}

TEST(ReproducerStore, KeepsTheRequestWithoutItsSender) {
  const std::string folder = TempPath("crash");
  ReproducerStore store(folder, 2);
  v1::CompileRequest request = testing::SampleRequest(8);
  request.mutable_context()->set_job("secret job");
  const auto id = store.Write(Sha256("k"), request, "report", "log");
  ASSERT_TRUE(id.ok()) << id.status();
  std::ifstream in(folder + "/" + *id + "/request.pb", std::ios::binary);
  v1::CompileRequest read;
  ASSERT_TRUE(read.ParseFromIstream(&in));
  EXPECT_FALSE(read.has_context());
  request.clear_context();
  EXPECT_EQ(read.graph().SerializeAsString(), request.graph().SerializeAsString());
}

}  // namespace
}  // namespace stepone::server
