// What the service does when its processes and its files suffer. Clients get clean answers, and nothing that was
// acknowledged is lost.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/signing.h"
#include "tests/testlib/sample_request.h"
#include "tests/testlib/server_under_test.h"

namespace stepone {
namespace {

namespace fs = std::filesystem;
using testing::AwaitFile;
using testing::Compile;
using testing::CountLines;
using testing::FreshFolder;
using testing::SampleBundle;
using testing::SampleRequest;
using testing::ServerUnderTest;
using testing::StreamResult;

// Mounts a file system of `bytes` on `path`, which this process and its children alone see. False without the right to.
bool MountSmallDisk(const std::string& path, size_t bytes) {
  fs::create_directories(path);
  const std::string ids[] = {"0 " + std::to_string(geteuid()) + " 1", "0 " + std::to_string(getegid()) + " 1"};
  if (unshare(CLONE_NEWNS) != 0) {
    // As root of a user namespace of its own, where the system lets users have one.
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << ids[0];
    std::ofstream("/proc/self/gid_map") << ids[1];
  }
  const std::string size = "mode=0700,size=" + std::to_string(bytes);
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", path.c_str(), "tmpfs", 0, size.c_str()) == 0;
}

// Writes until nothing more fits.
void FillDisk(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  const std::string block(4096, 'x');
  while (write(file, block.data(), block.size()) > 0) {
  }
  EXPECT_EQ(errno, ENOSPC);
  close(file);
}

class ServerFaultTest : public ::testing::Test {
 protected:
  ~ServerFaultTest() override {
    server_.reset();
    fs::remove_all(folder_);
  }
  ServerUnderTest& Start(std::vector<std::string> options = {}) {
    server_.reset();
    server_ = std::make_unique<ServerUnderTest>(STEPONE_SERVER, STEPONE_FAKE_WORKER, folder_, std::move(options));
    return *server_;
  }
  std::string Scratch(const std::string& name) const { return folder_ + "/state/scratch/" + name; }
  v1::CompileRequest Journalled(int64_t elements, const std::string& behaviour = "ok",
                                const std::string& path = "") const {
    v1::CompileRequest request = SampleRequest(elements, behaviour, path);
    (*request.mutable_code_options()->mutable_backend_options())["fake.journal"] = Scratch("journal");
    request.mutable_run_options()->set_blocking_step(true);
    return request;
  }
  // The artifact for a request, without compiling; empty when there is none.
  std::string Find(const v1::CompileRequest& request) {
    grpc::ClientContext context;
    v1::FindResponse response;
    const grpc::Status status = server_->stub()->Find(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.found() ? response.artifact().SerializeAsString() : "";
  }

  bool LogHas(const std::string& text) const {
    std::ifstream log(folder_ + "/server.log");
    return std::string((std::istreambuf_iterator<char>(log)), {}).find(text) != std::string::npos;
  }

  const std::string folder_ = FreshFolder();
  std::unique_ptr<ServerUnderTest> server_;
};

TEST_F(ServerFaultTest, HundredEqualRequestsAreOneCompile) {
  auto stub = Start({"--workers=2"}).stub();
  std::vector<StreamResult> results(100);
  std::vector<std::thread> clients;
  for (StreamResult& result : results) {
    clients.emplace_back([&] { result = Compile(*stub, Journalled(8)); });
  }
  for (std::thread& client : clients) client.join();
  const std::string bytes = results[0].done->artifact().SerializeAsString();
  for (const StreamResult& result : results) {
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.done->artifact().SerializeAsString(), bytes);
  }
  EXPECT_EQ(CountLines(Scratch("journal")), 1);
}

TEST_F(ServerFaultTest, ALostWorkerIsTriedOnceMore) {
  auto stub = Start().stub();
  int elements = 0;
  for (const char* behaviour : {"crash_once", "killed_once"}) {
    const StreamResult result = Compile(*stub, Journalled(++elements, behaviour, Scratch(behaviour)));
    EXPECT_TRUE(result.status.ok()) << behaviour << ": " << result.status.error_message();
  }
  EXPECT_EQ(CountLines(Scratch("journal")), 4);
}

TEST_F(ServerFaultTest, ACompilerThatAlwaysCrashesLeavesAReproducer) {
  auto stub = Start().stub();
  const StreamResult result = Compile(*stub, Journalled(8, "crash"));
  EXPECT_EQ(result.status.error_code(), grpc::INTERNAL);
  ASSERT_FALSE(result.detail.reproducer_id().empty());
  const std::string crash = server_->folder("crash") + "/" + result.detail.reproducer_id();
  std::ifstream in(crash + "/request.pb", std::ios::binary);
  v1::CompileRequest request;
  ASSERT_TRUE(request.ParseFromIstream(&in));
  EXPECT_EQ(request.graph().nodes(0).op(), "aten.relu.default");
  std::ifstream log(crash + "/worker.log");
  const std::string text((std::istreambuf_iterator<char>(log)), {});
  EXPECT_THAT(text, ::testing::HasSubstr("fatal signal in stage import"));
  // Remembered: the same request does not bring down more workers. Others are not disturbed.
  EXPECT_EQ(Compile(*stub, Journalled(8, "crash")).detail.reproducer_id(), result.detail.reproducer_id());
  EXPECT_EQ(CountLines(Scratch("journal")), 2);
  EXPECT_TRUE(Compile(*stub, SampleRequest(9)).status.ok());
}

TEST_F(ServerFaultTest, AHungCompileIsOneFailedRequest) {
  auto stub = Start({"--job-timeout-seconds=0.5"}).stub();
  const StreamResult result = Compile(*stub, Journalled(8, "hang"));
  EXPECT_EQ(result.status.error_code(), grpc::INTERNAL);
  EXPECT_FALSE(result.detail.reproducer_id().empty());
  v1::CompileRequest healthy = SampleRequest(9);
  healthy.mutable_run_options()->set_recompile(true);
  // The limit is short for a machine under load; what counts is that the slot lives.
  StreamResult next = Compile(*stub, healthy);
  while (!next.status.ok()) next = Compile(*stub, healthy);
  EXPECT_EQ(server_->WorkerPids().size(), 1u);
}

TEST_F(ServerFaultTest, AFullQueueSaysWhenToComeBack) {
  auto stub = Start({"--queue-length=1"}).stub();
  StreamResult running, waiting;
  std::thread first([&] { running = Compile(*stub, Journalled(1, "gate", Scratch("gate"))); });
  AwaitFile(Scratch("journal"), 1);
  std::atomic<bool> queued{false};
  std::thread second([&] {
    waiting = Compile(*stub, Journalled(2), [&](const v1::CompileEvent& event, grpc::ClientContext&) {
      if (event.has_queued()) queued = true;
    });
  });
  while (!queued) absl::SleepFor(absl::Milliseconds(3));
  const StreamResult refused = Compile(*stub, Journalled(3));
  EXPECT_EQ(refused.status.error_code(), grpc::RESOURCE_EXHAUSTED);
  EXPECT_GT(refused.detail.retry_after_ms(), 0);
  testing::Touch(Scratch("gate"));
  first.join();
  second.join();
  EXPECT_TRUE(running.status.ok());
  EXPECT_TRUE(waiting.status.ok());
}

TEST_F(ServerFaultTest, WorkersKilledAtRandomCostNoRequestButTheirs) {
  auto stub = Start({"--workers=2"}).stub();
  std::atomic<bool> stop{false};
  std::thread killer([&] {
    std::mt19937 random(7);
    for (int kills = 0; kills < 30 && !stop; ++kills) {
      absl::SleepFor(absl::Milliseconds(std::uniform_int_distribution<>(1, 40)(random)));
      const std::vector<pid_t> workers = server_->WorkerPids();
      if (!workers.empty()) kill(workers[random() % workers.size()], SIGKILL);
    }
  });
  const auto request = [](int elements) {
    v1::CompileRequest r = SampleRequest(elements);
    r.mutable_run_options()->set_blocking_step(true);
    return r;
  };
  for (int i = 1; i <= 60; ++i) {
    const StreamResult result = Compile(*stub, request(i));
    // Two kills in a row may hit one request; that is said clearly and not remembered.
    if (!result.status.ok()) {
      EXPECT_EQ(result.status.error_code(), grpc::INTERNAL) << result.status.error_message();
      EXPECT_THAT(result.status.error_message(), ::testing::HasSubstr("workers were lost"));
    }
  }
  stop = true;
  killer.join();
  ASSERT_TRUE(server_->running());
  for (int i = 1; i <= 60; ++i) {
    StreamResult result = Compile(*stub, request(i));
    EXPECT_TRUE(result.status.ok()) << i << ": " << result.status.error_message();
  }
}

TEST_F(ServerFaultTest, VanishingClientsGiveTheirSlotsBack) {
  auto stub = Start({"--grace-seconds=0.05"}).stub();
  std::mt19937 random(11);
  for (int i = 1; i <= 20; ++i) {
    const int patience = static_cast<int>(random() % 3);
    Compile(*stub, Journalled(i, "gate", Scratch("never")),
            [patience, seen = 0](const v1::CompileEvent&, grpc::ClientContext& context) mutable {
              if (seen++ >= patience) context.TryCancel();
            });
  }
  // The only slot is free again, although no gate was ever opened.
  EXPECT_TRUE(Compile(*stub, SampleRequest(1000)).status.ok());
}

TEST_F(ServerFaultTest, ARestartKeepsWhatWasStored) {
  Start();
  const StreamResult cold = Compile(*server_->stub(), Journalled(8));
  ASSERT_TRUE(cold.status.ok());
  server_->Signal(SIGTERM);
  ASSERT_EQ(server_->Wait(), 0);
  Start();
  const StreamResult warm = Compile(*server_->stub(), Journalled(8));
  ASSERT_TRUE(warm.status.ok());
  EXPECT_EQ(warm.done->source(), v1::SOURCE_DISK);
  EXPECT_EQ(warm.done->artifact().SerializeAsString(), cold.done->artifact().SerializeAsString());
  EXPECT_EQ(CountLines(Scratch("journal")), 1);
}

TEST_F(ServerFaultTest, HardKillsKeepBundlesThatWereAcknowledged) {
  for (int round = 0; round < 3; ++round) {
    Start();
    const v1::CompileRequest request = SampleRequest(8 + round, "ok", "", v1::ROLE_INFERENCE);
    const StreamResult compiled = Compile(*server_->stub(), request);
    ASSERT_TRUE(compiled.status.ok()) << compiled.status.error_message();
    const v1::PutBundleRequest put = SampleBundle(request, "trace " + std::to_string(round),
                                                  compiled.done->artifact().signed_manifest().graph_key());
    grpc::ClientContext put_context;
    v1::PutBundleResponse response;
    const grpc::Status status = server_->stub()->PutBundle(&put_context, put, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(response.stored());
    server_->KillHard();
    Start();
    grpc::ClientContext find_context;
    v1::FindBundleResponse found;
    ASSERT_TRUE(server_->stub()->FindBundle(&find_context, put.trace(), &found).ok());
    ASSERT_TRUE(found.found());
    EXPECT_EQ(found.source(), v1::SOURCE_DISK);
    EXPECT_EQ(found.artifacts(0).SerializeAsString(), compiled.done->artifact().SerializeAsString());
  }
}

TEST_F(ServerFaultTest, WorkersDieWithTheServer) {
  Start({"--workers=2"});
  const std::vector<pid_t> workers = server_->WorkerPids();
  ASSERT_FALSE(workers.empty());
  server_->KillHard();
  for (pid_t worker : workers) {
    // A zombie that init has not collected yet is dead, too.
    const auto dead = [worker] {
      std::ifstream stat("/proc/" + std::to_string(worker) + "/stat");
      const std::string text((std::istreambuf_iterator<char>(stat)), {});
      const size_t paren = text.rfind(')');
      return paren == std::string::npos || text[paren + 2] == 'Z' || text[paren + 2] == 'X';
    };
    while (!dead()) absl::SleepFor(absl::Milliseconds(3));
  }
}

TEST_F(ServerFaultTest, FiftyHardKillsLoseNothingThatWasAcknowledged) {
  std::mt19937 random(2026);
  std::map<int, std::string> acknowledged;  // elements -> artifact
  int next = 1;
  size_t promised = 0;
  for (int round = 0; round < 50; ++round) {
    Start();
    // What the last rounds acknowledged is there, bit for bit.
    for (auto entry = acknowledged.rbegin();
         entry != acknowledged.rend() && std::distance(acknowledged.rbegin(), entry) < 5; ++entry) {
      EXPECT_EQ(Find(SampleRequest(entry->first)), entry->second) << "round " << round << ", request " << entry->first;
    }
    // After a few answers, somewhere in the middle of a later request.
    const int wanted = static_cast<int>(random() % 4);
    std::atomic<int> answered{0};
    std::thread killer([&, delay_us = random() % 20'000] {
      while (answered < wanted) absl::SleepFor(absl::Milliseconds(1));
      absl::SleepFor(absl::Microseconds(delay_us));
      server_->Signal(SIGKILL);
    });
    promised += wanted;
    auto stub = server_->stub();
    while (true) {
      v1::CompileRequest request = SampleRequest(next);
      request.mutable_run_options()->set_blocking_step(true);
      const StreamResult result = Compile(*stub, request);
      if (result.done.has_value()) acknowledged[next] = result.done->artifact().SerializeAsString();
      ++next;
      if (!result.status.ok()) break;
      ++answered;
    }
    killer.join();
    server_->Wait();
  }
  Start();
  for (const auto& [elements, artifact] : acknowledged) EXPECT_EQ(Find(SampleRequest(elements)), artifact) << elements;
  EXPECT_GE(acknowledged.size(), promised);
}

TEST_F(ServerFaultTest, OnAFullDiskTheServiceGoesOnFromMemory) {
  const std::string state = folder_ + "/state";
  if (!MountSmallDisk(state, 4 << 20)) GTEST_SKIP() << "no right to mount a small file system here";
  Start();
  ASSERT_TRUE(Compile(*server_->stub(), Journalled(1)).status.ok());
  EXPECT_EQ(server_->Metric("stepone_store_failed_writes{tier=\"disk\"}"), 0);

  FillDisk(state + "/filler");
  const StreamResult full = Compile(*server_->stub(), Journalled(2));
  ASSERT_TRUE(full.status.ok()) << full.status.error_message();
  EXPECT_EQ(full.done->source(), v1::SOURCE_COMPILED);
  const StreamResult again = Compile(*server_->stub(), Journalled(2));
  EXPECT_EQ(again.done->source(), v1::SOURCE_MEMORY);
  EXPECT_EQ(again.done->artifact().SerializeAsString(), full.done->artifact().SerializeAsString());
  EXPECT_GE(server_->Metric("stepone_store_failed_writes{tier=\"disk\"}"), 1);
  EXPECT_EQ(testing::Health(server_->tcp(), "stepone.v1.CompileService"), 1);
  while (!LogHas("writes to disk failed")) absl::SleepFor(absl::Milliseconds(3));

  // With room again the next artifact is kept, without a restart.
  fs::remove(state + "/filler");
  const StreamResult kept = Compile(*server_->stub(), Journalled(3));
  ASSERT_TRUE(kept.status.ok()) << kept.status.error_message();
  server_->Signal(SIGTERM);
  ASSERT_EQ(server_->Wait(), 0);
  Start();
  EXPECT_EQ(Compile(*server_->stub(), Journalled(3)).done->source(), v1::SOURCE_DISK);
  EXPECT_EQ(Compile(*server_->stub(), Journalled(2)).done->source(), v1::SOURCE_COMPILED);
  server_.reset();
  umount2(state.c_str(), MNT_DETACH);
}

TEST_F(ServerFaultTest, HealthSaysWhenNoWorkerTakesWhatWaits) {
  const std::string worker = folder_ + "/worker";
  fs::copy_file(STEPONE_FAKE_WORKER, worker);
  server_ = std::make_unique<ServerUnderTest>(STEPONE_SERVER, worker, folder_,
                                              std::vector<std::string>{"--stall-seconds=0.1"});
  const auto health = [this] { return testing::Health(server_->tcp(), "stepone.v1.CompileService"); };
  EXPECT_EQ(health(), 1);
  EXPECT_EQ(server_->Metric("stepone_queue_stalled_seconds"), 0);

  // The only worker dies, and no other one can be started.
  fs::rename(worker, worker + ".gone");
  const std::vector<pid_t> workers = server_->WorkerPids();
  ASSERT_EQ(workers.size(), 1u);
  kill(workers[0], SIGKILL);
  StreamResult result;
  std::thread client([&] { result = Compile(*server_->stub(), Journalled(1)); });
  while (health() != 2) absl::SleepFor(absl::Milliseconds(3));
  EXPECT_GT(server_->Metric("stepone_queue_stalled_seconds"), 0.1);

  fs::rename(worker + ".gone", worker);
  client.join();
  EXPECT_TRUE(result.status.ok()) << result.status.error_message();
  while (health() != 1) absl::SleepFor(absl::Milliseconds(3));
  EXPECT_EQ(server_->Metric("stepone_queue_stalled_seconds"), 0);
}

TEST_F(ServerFaultTest, DamagedEntriesAreCompiledAgain) {
  Start();
  for (int i = 1; i <= 4; ++i) ASSERT_TRUE(Compile(*server_->stub(), Journalled(i)).status.ok());
  const auto key = [this] {
    grpc::ClientContext context;
    v1::GetCapabilitiesResponse capabilities;
    EXPECT_TRUE(server_->stub()->GetCapabilities(&context, {}, &capabilities).ok());
    return capabilities.public_key();
  }();
  server_->Signal(SIGTERM);
  ASSERT_EQ(server_->Wait(), 0);
  // One bit in the middle of every file that holds an artifact or a kernel.
  int damaged = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder_ + "/state/store")) {
    if (!entry.is_regular_file() || entry.path().filename().string().find("index") != std::string::npos ||
        entry.path().filename().string().find("lock") != std::string::npos || entry.file_size() == 0) {
      continue;
    }
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(entry.file_size() / 2);
    file.seekg(middle);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(middle);
    file.put(byte);
    ++damaged;
  }
  ASSERT_GE(damaged, 4);
  Start();
  TrustedKeys trusted;
  ASSERT_TRUE(trusted.Add(key).ok());
  for (int i = 1; i <= 4; ++i) {
    const StreamResult result = Compile(*server_->stub(), Journalled(i));
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.done->source(), v1::SOURCE_COMPILED);
    EXPECT_TRUE(trusted.Verify(result.done->artifact().signed_manifest()).ok());
    EXPECT_EQ(Compile(*server_->stub(), Journalled(i)).done->source(), v1::SOURCE_MEMORY);
  }
  EXPECT_EQ(CountLines(Scratch("journal")), 8);
}

TEST_F(ServerFaultTest, ArtifactsSignedBySomebodyElseAreNotHandedOut) {
  Start();
  ASSERT_TRUE(Compile(*server_->stub(), Journalled(8)).status.ok());
  server_->Signal(SIGTERM);
  ASSERT_EQ(server_->Wait(), 0);
  fs::remove(folder_ + "/state/keys/server.pem");
  Start();
  EXPECT_EQ(Compile(*server_->stub(), Journalled(8)).done->source(), v1::SOURCE_COMPILED);
  server_->Signal(SIGTERM);
  ASSERT_EQ(server_->Wait(), 0);
  Start();
  EXPECT_EQ(Compile(*server_->stub(), Journalled(8)).done->source(), v1::SOURCE_DISK);
  EXPECT_EQ(CountLines(Scratch("journal")), 2);
}

}  // namespace
}  // namespace stepone
