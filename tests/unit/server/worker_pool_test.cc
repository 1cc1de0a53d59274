// Worker processes under the real pool; the compiler in them is scripted.
#include "server/worker_pool.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <deque>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testlib/sample_request.h"

namespace stepone::server {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class ListSource : public JobSource {
 public:
  void Add(Assignment assignment) {
    absl::MutexLock lock(&mu_);
    jobs_.push_back(std::move(assignment));
  }
  std::optional<Assignment> NextJob(absl::Duration timeout) override {
    absl::MutexLock lock(&mu_);
    const auto some = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return !jobs_.empty(); };
    if (!mu_.AwaitWithTimeout(absl::Condition(&some), std::min(timeout, absl::Milliseconds(50)))) return std::nullopt;
    Assignment assignment = std::move(jobs_.front());
    jobs_.pop_front();
    return assignment;
  }

 private:
  absl::Mutex mu_;
  std::deque<Assignment> jobs_ ABSL_GUARDED_BY(mu_);
};

// One job and its outcome.
struct Submitted {
  std::shared_ptr<JobControl> control = std::make_shared<JobControl>();
  absl::Notification started, done;
  JobOutcome outcome;

  const JobOutcome& Wait() {
    done.WaitForNotification();
    return outcome;
  }
};

class WorkerPoolTest : public ::testing::Test {
 protected:
  WorkerPoolTest() {
    folder_ = ::testing::TempDir() + "/stepone_pool_" + std::to_string(getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    options_.process.executable = STEPONE_FAKE_WORKER;
    options_.process.arguments = {"--scratch-dir=" + folder_, "--memory-limit-mb=2048"};
    options_.process.log_path = folder_ + "/worker-";
    options_.cancel_grace = absl::Seconds(60);
  }
  ~WorkerPoolTest() override {
    if (pool_ != nullptr) pool_->Stop();
    fs::remove_all(folder_);
  }

  void Start() {
    pool_ = std::make_unique<WorkerPool>(options_, &source_);
    const auto hello = pool_->Start();
    ASSERT_TRUE(hello.ok()) << hello.status();
    hello_ = *hello;
  }

  std::shared_ptr<Submitted> Submit(const std::string& behaviour, absl::Duration timeout = absl::Seconds(60),
                                    const std::string& path = "", bool blocking = true) {
    auto run = std::make_shared<Submitted>();
    const v1::CompileRequest request = testing::SampleRequest(8, behaviour, path);
    Assignment assignment;
    *assignment.job.mutable_graph() = request.graph();
    *assignment.job.mutable_target() = request.target();
    *assignment.job.mutable_code_options() = request.code_options();
    assignment.job.set_blocking_step(blocking);
    if (behaviour == "spin") assignment.job.set_deadline_ms(1);
    assignment.deadline = absl::Now() + timeout;
    assignment.control = run->control;
    assignment.on_stage = [run](const v1::Stage&) {
      if (!run->started.HasBeenNotified()) run->started.Notify();
    };
    assignment.on_lookup = [](const v1::KernelLookup& lookup) {
      v1::KernelAnswer answer;
      for (int i = 0; i < lookup.kernel_keys_size(); ++i) answer.add_objects();
      return answer;
    };
    assignment.on_done = [run](JobOutcome outcome) {
      run->outcome = std::move(outcome);
      run->done.Notify();
    };
    source_.Add(std::move(assignment));
    return run;
  }

  std::string folder_;
  WorkerPool::Options options_;
  ListSource source_;
  v1::Hello hello_;
  std::unique_ptr<WorkerPool> pool_;
};

TEST_F(WorkerPoolTest, RunsJobsInAConfinedProcess) {
  Start();
  EXPECT_EQ(hello_.compiler_fingerprint(), "fake 1");
  EXPECT_THAT(hello_.sandbox(), ::testing::IsSupersetOf({"rlimits", "no-new-privileges"}));
  const auto run = Submit("ok");
  EXPECT_EQ(run->Wait().kind, JobOutcome::Kind::kResult);
  EXPECT_EQ(run->outcome.result.objects_size(), 2);
  EXPECT_EQ(run->outcome.result.new_kernels_size(), 2);
}

TEST_F(WorkerPoolTest, ErrorsOfTheCompilerAreResults) {
  Start();
  const auto run = Submit("invalid");
  EXPECT_EQ(run->Wait().kind, JobOutcome::Kind::kResult);
  EXPECT_EQ(run->outcome.result.error().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
}

struct Loss {
  const char* behaviour;
  JobOutcome::Kind kind;
  const char* log;
};

class WorkerPoolLossTest : public WorkerPoolTest, public ::testing::WithParamInterface<Loss> {};

TEST_P(WorkerPoolLossTest, CostsOneJobAndTheSlotGoesOn) {
  Start();
  const auto lost = Submit(GetParam().behaviour, absl::Seconds(60));
  EXPECT_EQ(static_cast<int>(lost->Wait().kind), static_cast<int>(GetParam().kind)) << lost->outcome.text;
  EXPECT_THAT(lost->outcome.worker_log, HasSubstr(GetParam().log));
  EXPECT_EQ(Submit("ok")->Wait().kind, JobOutcome::Kind::kResult);
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerPoolLossTest,
    ::testing::Values(Loss{"crash", JobOutcome::Kind::kCrashed, "fatal signal in stage import"},
                      Loss{"overflow", JobOutcome::Kind::kCrashed, "fatal signal in stage import"},
                      Loss{"killed", JobOutcome::Kind::kKilled, ""}, Loss{"exit", JobOutcome::Kind::kBadOutput, ""},
                      Loss{"garbage", JobOutcome::Kind::kBadOutput, ""},
                      Loss{"memory", JobOutcome::Kind::kOutOfMemory, "out of memory in stage import"}),
    [](const auto& info) { return std::string(info.param.behaviour); });

TEST_F(WorkerPoolTest, AHungJobIsKilledAtItsDeadline) {
  Start();
  const auto run = Submit("hang", absl::Milliseconds(300));
  EXPECT_EQ(run->Wait().kind, JobOutcome::Kind::kTimedOut);
  EXPECT_EQ(Submit("ok")->Wait().kind, JobOutcome::Kind::kResult);
  EXPECT_EQ(pool_->stats().timed_out, 1);
}

TEST_F(WorkerPoolTest, AJobThatUsesUpItsProcessorTimeIsKilled) {
  Start();
  const auto run = Submit("spin");  // the job says one second
  EXPECT_EQ(run->Wait().kind, JobOutcome::Kind::kTimedOut) << run->outcome.text;
}

TEST_F(WorkerPoolTest, ACancelledJobStopsAndItsWorkerLives) {
  Start();
  const auto run = Submit("gate", absl::Seconds(60), folder_ + "/never");
  run->started.WaitForNotification();
  run->control->Cancel();
  EXPECT_EQ(run->Wait().kind, JobOutcome::Kind::kCancelled);
  EXPECT_EQ(Submit("ok")->Wait().kind, JobOutcome::Kind::kResult);
  EXPECT_EQ(pool_->stats().spawned, 1);
}

TEST_F(WorkerPoolTest, AJobThatDoesNotListenIsKilled) {
  options_.cancel_grace = absl::Milliseconds(50);
  Start();
  const auto run = Submit("deaf_gate", absl::Seconds(60), folder_ + "/never");
  run->started.WaitForNotification();
  run->control->Cancel();
  EXPECT_EQ(run->Wait().kind, JobOutcome::Kind::kCancelled);
  EXPECT_EQ(Submit("ok")->Wait().kind, JobOutcome::Kind::kResult);
  EXPECT_EQ(pool_->stats().spawned, 2);
}

TEST_F(WorkerPoolTest, WorkersAreRecycled) {
  options_.jobs_per_worker = 2;
  Start();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Submit("ok")->Wait().kind, JobOutcome::Kind::kResult);
  const auto after = Submit("ok");
  after->Wait();
  EXPECT_EQ(pool_->stats().recycled, 2);
  EXPECT_EQ(pool_->stats().spawned, 3);
}

TEST_F(WorkerPoolTest, StoppingEndsRunningJobs) {
  Start();
  const auto run = Submit("hang");
  run->started.WaitForNotification();
  pool_->Stop();
  EXPECT_EQ(run->Wait().kind, JobOutcome::Kind::kCancelled);
}

TEST_F(WorkerPoolTest, AWorkerThatCannotStartIsReportedWithItsLastWords) {
  options_.process.environment = {"STEPONE_FAKE_HELLO=exit"};
  options_.hello_timeout = absl::Seconds(5);
  options_.min_backoff = absl::Seconds(60);
  pool_ = std::make_unique<WorkerPool>(options_, &source_);
  absl::Notification done;
  const absl::Status status = pool_->Start().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the fake refuses to start"));

  options_.process.executable = "/does/not/exist";
  options_.hello_timeout = absl::Milliseconds(100);
  WorkerPool missing(options_, &source_);
  EXPECT_THAT(std::string(missing.Start().status().message()), HasSubstr("/does/not/exist"));
}

// Scheduling classes of all threads of the worker whose parent is this process.
std::vector<int> WorkerPolicies() {
  std::vector<int> policies;
  for (const auto& process : fs::directory_iterator("/proc")) {
    const int pid = std::atoi(process.path().filename().c_str());
    if (pid == 0) continue;
    std::ifstream stat(process.path() / "stat");
    std::string text((std::istreambuf_iterator<char>(stat)), {});
    const size_t paren = text.rfind(')');
    if (paren == std::string::npos) continue;
    char state;
    int parent = 0;
    if (std::sscanf(text.c_str() + paren + 1, " %c %d", &state, &parent) != 2 || parent != getpid()) continue;
    for (const auto& thread : fs::directory_iterator(process.path() / "task")) {
      policies.push_back(sched_getscheduler(std::atoi(thread.path().filename().c_str())));
    }
  }
  return policies;
}

TEST_F(WorkerPoolTest, OnlyBlockingJobsLeaveTheIdleClass) {
  Start();
  const auto background = Submit("gate", absl::Seconds(60), folder_ + "/open1", /*blocking=*/false);
  background->started.WaitForNotification();
  EXPECT_THAT(WorkerPolicies(), ::testing::Contains(SCHED_IDLE));
  std::ofstream(folder_ + "/open1").put('x');
  background->Wait();
  const auto blocking = Submit("gate", absl::Seconds(60), folder_ + "/open2");
  blocking->started.WaitForNotification();
  EXPECT_THAT(WorkerPolicies(), ::testing::Each(SCHED_OTHER));
  std::ofstream(folder_ + "/open2").put('x');
  blocking->Wait();
}

}  // namespace
}  // namespace stepone::server
