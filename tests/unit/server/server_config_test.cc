#include "server/server_config.h"

#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stepone::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ServerConfigTest : public ::testing::Test {
 protected:
  absl::StatusOr<ParsedConfig> Parse(std::vector<std::string> arguments) {
    return ParseServerConfig(arguments, [this](const char* name) -> const char* {
      const auto found = environment_.find(name);
      return found == environment_.end() ? nullptr : found->second.c_str();
    });
  }

  std::string File(const std::string& text) {
    const std::string path = ::testing::TempDir() + "/server_config_" +
                             ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".toml";
    std::ofstream(path) << text;
    return path;
  }

  std::map<std::string, std::string> environment_ = {{"HOME", "/home/u"}};
};

TEST_F(ServerConfigTest, Defaults) {
  const auto parsed = Parse({});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_THAT(parsed->config.listen, ElementsAre("127.0.0.1:7461"));
  EXPECT_EQ(parsed->config.state_dir, "/home/u/.local/state/stepone/server");
  EXPECT_GE(parsed->config.workers, 1);
  EXPECT_THAT(parsed->config.worker, HasSubstr("/stepone-worker"));
  EXPECT_FALSE(parsed->exit);
}

TEST_F(ServerConfigTest, StateFolderFollowsTheEnvironment) {
  environment_["XDG_STATE_HOME"] = "/state";
  EXPECT_EQ(Parse({})->config.state_dir, "/state/stepone/server");
  environment_["STEPONE_HOME"] = "/own";
  EXPECT_EQ(Parse({})->config.state_dir, "/own/server");
  environment_.clear();
  EXPECT_EQ(Parse({}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerConfigTest, FlagBeatsEnvironmentBeatsFileBeatsDefault) {
  const std::string file = File("workers = 3\nqueue-length = 30\ngrace-seconds = 3\nlisten = [\"127.0.0.1:3\"]\n");
  environment_["STEPONE_SERVER_QUEUE_LENGTH"] = "20";
  environment_["STEPONE_SERVER_GRACE_SECONDS"] = "2";
  environment_["STEPONE_SERVER_LISTEN"] = "127.0.0.1:2,unix:/run/x";
  const auto parsed = Parse({"--config", file, "--grace-seconds", "1"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.grace_seconds, 1);
  EXPECT_EQ(parsed->config.queue_length, 20);
  EXPECT_EQ(parsed->config.workers, 3);
  EXPECT_EQ(parsed->config.jobs_per_worker, 200);
  EXPECT_THAT(parsed->config.listen, ElementsAre("127.0.0.1:2", "unix:/run/x"));
}

TEST_F(ServerConfigTest, TheFileCanBeNamedInTheEnvironment) {
  environment_["STEPONE_SERVER_CONFIG"] = File("workers = 7\n");
  const auto parsed = Parse({});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->config.workers, 7);
}

TEST_F(ServerConfigTest, UnknownFieldsAreRejected) {
  auto parsed = Parse({"--config", File("worker-count = 3\n")});
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("worker-count"));
  parsed = Parse({"--worker-count=3"});
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("worker-count"));
}

TEST_F(ServerConfigTest, WrongValuesNameTheOption) {
  for (const auto& [argument, name] : std::map<std::string, std::string>{
           {"--workers=many", "workers"},
           {"--tenant-share=2", "tenant-share"},
           {"--listen=nowhere", "--listen"},
           {"--listen=unix:relative", "--listen"},
           {"--listen=1.2.3.4:70000", "--listen"},
           {"--state-dir=relative", "--state-dir"},
           {"--tls-cert=/c.pem", "--tls-key"},
           {"--log-level=loud", "log-level"},
           {"--config=/does/not/exist", "/does/not/exist"},
       }) {
    const auto parsed = Parse({argument});
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << argument;
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(name)) << argument;
  }
}

TEST_F(ServerConfigTest, PrintedConfigurationReadsBackTheSame) {
  const auto printed = Parse({"--print-config", "--listen=127.0.0.1:1,unix:/run/s", "--tenants=a,b", "--workers=5",
                              "--share-kernels=true", "--grace-seconds=2.5", "--token-file=/t"});
  ASSERT_TRUE(printed.ok()) << printed.status();
  ASSERT_TRUE(printed->exit);
  environment_.clear();
  const auto read = Parse({"--config", File(printed->output), "--print-config"});
  ASSERT_TRUE(read.ok()) << read.status() << printed->output;
  EXPECT_EQ(read->output, printed->output);
  EXPECT_THAT(read->config.listen, ElementsAre("127.0.0.1:1", "unix:/run/s"));
  EXPECT_THAT(read->config.tenants, ElementsAre("a", "b"));
  EXPECT_TRUE(read->config.share_kernels);
  EXPECT_EQ(read->config.grace_seconds, 2.5);
}

TEST_F(ServerConfigTest, HelpAndVersion) {
  auto parsed = Parse({"--help"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->exit);
  EXPECT_THAT(parsed->output, HasSubstr("--drain-seconds"));
  EXPECT_THAT(parsed->output, HasSubstr("STEPONE_SERVER_STATE_DIR"));
  parsed = Parse({"--version"});
  ASSERT_TRUE(parsed.ok());
  EXPECT_THAT(parsed->output, HasSubstr("stepone-server 0."));
}

}  // namespace
}  // namespace stepone::server
