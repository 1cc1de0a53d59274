// Starting the user's own server, with a script in the place of stepone-server.
#include "client/local_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stepone::client {
namespace {

using ::testing::HasSubstr;

// Notes each start and each argument, then accepts connections until its folder has a file "stop" or is gone.
constexpr char kServer[] = R"(#!/usr/bin/env python3
import os, socket, sys
arguments = dict(a.lstrip("-").split("=", 1) for a in sys.argv[1:])
path = arguments["listen"].removeprefix("unix:")
folder = os.path.dirname(path)
with open(folder + "/starts", "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\n")
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen(100)
server.settimeout(0.05)
while os.path.exists(folder) and not os.path.exists(folder + "/stop"):
    try:
        server.accept()[0].close()
    except TimeoutError:
        pass
)";

class LocalServerTest : public ::testing::Test {
 protected:
  LocalServerTest() {
    char name[] = "/tmp/stepone-local-XXXXXX";
    folder_ = mkdtemp(name);
    config_.home = folder_ + "/state/home";
    config_.server_path = folder_ + "/server";
    config_.server_start_timeout_ms = 60'000;
    WriteServer(kServer);
  }
  ~LocalServerTest() override {
    std::ofstream(config_.home + "/stop") << "";
    std::filesystem::remove_all(folder_);
  }

  void WriteServer(const std::string& text) {
    std::ofstream(config_.server_path) << text;
    chmod(config_.server_path.c_str(), 0755);
  }
  std::vector<std::string> Starts() const {
    std::ifstream file(config_.home + "/starts");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  std::string folder_;
  ClientConfig config_;
};

TEST_F(LocalServerTest, StartsOneForAllWhoAskAtOnce) {
  std::vector<std::thread> threads;
  std::vector<absl::StatusOr<std::string>> endpoints(8, absl::UnknownError(""));
  for (auto& endpoint : endpoints) threads.emplace_back([&] { endpoint = EnsureLocalServer(config_); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& endpoint : endpoints) {
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    EXPECT_EQ(*endpoint, "unix:" + config_.home + "/server.sock");
    EXPECT_TRUE(IsPrivateSocket(*endpoint));
  }
  ASSERT_EQ(Starts().size(), 1u);
  EXPECT_THAT(Starts()[0], HasSubstr("--state-dir=" + config_.home + "/server"));
  EXPECT_THAT(Starts()[0], HasSubstr("--idle-exit-seconds="));
  struct stat info{};
  ASSERT_EQ(stat(config_.home.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(LocalServerTest, PassesArgumentsOn) {
  config_.server_arguments = {"--workers=1"};
  ASSERT_TRUE(EnsureLocalServer(config_).ok());
  EXPECT_THAT(Starts()[0], HasSubstr("--workers=1"));
}

TEST_F(LocalServerTest, ReplacesASocketThatAKilledServerLeft) {
  std::filesystem::create_directories(config_.home);
  chmod(config_.home.c_str(), 0700);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (config_.home + "/server.sock").copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(fd);
  EXPECT_TRUE(EnsureLocalServer(config_).ok());
}

TEST_F(LocalServerTest, AServerThatEndsAtOnceIsReportedWithItsLog) {
  WriteServer("#!/bin/sh\necho the disk is full >&2\nexit 1\n");
  const auto endpoint = EnsureLocalServer(config_);
  EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("the disk is full"));
}

TEST_F(LocalServerTest, AServerThatNeverAnswersMeetsTheTimeLimit) {
  WriteServer("#!/bin/sh\nwhile [ -d \"" + folder_ + "\" ]; do sleep 0.05; done\n");
  config_.server_start_timeout_ms = 200;
  const absl::Status status = EnsureLocalServer(config_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not answer in time"));
}

TEST_F(LocalServerTest, SaysWhatIsMissing) {
  config_.server_path = folder_ + "/nothing";
  const auto endpoint = EnsureLocalServer(config_);
  EXPECT_EQ(endpoint.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(endpoint.status().message()), HasSubstr("STEPONE_SERVER"));
}

TEST_F(LocalServerTest, RefusesAFolderThatOthersMayEnter) {
  std::filesystem::create_directories(config_.home);
  chmod(config_.home.c_str(), 0755);
  EXPECT_EQ(EnsureLocalServer(config_).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(IsPrivateSocket("unix:" + config_.home + "/server.sock"));
  EXPECT_FALSE(IsPrivateSocket("127.0.0.1:7461"));
}

TEST(ClientConfigTest, ReadsKeysInBothNotations) {
  char name[] = "/tmp/stepone-keys-XXXXXX";
  close(mkstemp(name));
  std::ofstream(name) << "# ours\n"
                      << std::string(64, 'a') << "  # build farm\n\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
  const auto keys = ReadTrustedKeys(name);
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0], std::string(32, '\xaa'));
  EXPECT_EQ((*keys)[1][31], 31);
  std::ofstream(name) << "\nnot a key\n";
  EXPECT_THAT(std::string(ReadTrustedKeys(name).status().message()), HasSubstr(":2 is no ed25519"));
  unlink(name);
  EXPECT_EQ(ReadTrustedKeys(name).status().code(), absl::StatusCode::kNotFound);
}

TEST(ClientConfigTest, ReadsTheEnvironment) {
  setenv("STEPONE_ENDPOINT", "host:7461", 1);
  setenv("STEPONE_CONNECT_TIMEOUT_MS", "1500", 1);
  setenv("STEPONE_SERVER_ARGS", "--workers=1  --log-level=debug", 1);
  const auto config = ConfigFromEnvironment();
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->endpoint, "host:7461");
  EXPECT_EQ(config->connect_timeout_ms, 1500);
  EXPECT_THAT(config->server_arguments, ::testing::ElementsAre("--workers=1", "--log-level=debug"));
  setenv("STEPONE_CONNECT_TIMEOUT_MS", "soon", 1);
  EXPECT_THAT(std::string(ConfigFromEnvironment().status().message()),
              HasSubstr("STEPONE_CONNECT_TIMEOUT_MS=\"soon\""));
  for (const char* name : {"STEPONE_ENDPOINT", "STEPONE_CONNECT_TIMEOUT_MS", "STEPONE_SERVER_ARGS"}) unsetenv(name);
}

TEST(ClientConfigTest, TheJobIsTheLaunchersUnlessItIsSet) {
  using Environment = std::vector<std::pair<const char*, const char*>>;
  const std::vector<std::pair<Environment, std::string>> cases = {
      {{}, ""},
      {{{"TORCHELASTIC_RUN_ID", "none"}}, ""},
      {{{"TORCHELASTIC_RUN_ID", "run 7/a"}}, "run-7-a"},
      {{{"TORCHELASTIC_RUN_ID", "none"}, {"SLURM_JOB_ID", "12"}, {"SLURM_STEP_ID", "3"}}, "slurm-12.3"},
      {{{"SLURM_JOB_ID", "12"}}, "slurm-12."},
      {{{"PMIX_NAMESPACE", "prterun@host..1"}}, "prterun@host--1"},
      {{{"OMPI_MCA_ess_base_jobid", "99"}}, "99"},
      {{{"JOBSET_NAME", "train"}}, "train"},
      {{{"STEPONE_JOB", "mine"}, {"SLURM_JOB_ID", "12"}}, "mine"},
  };
  for (const auto& [environment, job] : cases) {
    for (const auto& [name, value] : environment) setenv(name, value, 1);
    const auto config = ConfigFromEnvironment();
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_EQ(config->job, job);
    for (const auto& [name, value] : environment) unsetenv(name);
  }
}

}  // namespace
}  // namespace stepone::client
