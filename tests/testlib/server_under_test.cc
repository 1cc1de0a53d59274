#include "tests/testlib/server_under_test.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"

extern char** environ;

namespace stepone::testing {
namespace {

namespace fs = std::filesystem;

// Nothing tells when a file appears; so looking again at short intervals is how these tests wait.
void LookAgain() { absl::SleepFor(absl::Milliseconds(3)); }

std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

StreamResult ReadStream(grpc::ClientReader<v1::CompileEvent>& reader, grpc::ClientContext& context,
                        const std::function<void(const v1::CompileEvent&, grpc::ClientContext&)>& on_event) {
  StreamResult result;
  v1::CompileEvent event;
  while (reader.Read(&event)) {
    result.operation = event.operation();
    if (event.has_done()) result.done = event.done();
    result.events.push_back(event);
    if (on_event != nullptr) on_event(event, context);
  }
  result.status = reader.Finish();
  result.detail = DetailOf(context);
  return result;
}

}  // namespace

ServerUnderTest::ServerUnderTest(const std::string& binary, const std::string& worker, const std::string& folder,
                                 std::vector<std::string> options)
    : folder_(folder) {
  fs::create_directories(folder);
  std::error_code error;
  fs::remove(this->folder("endpoints"), error);
  std::vector<std::string> arguments = {binary, "--listen=127.0.0.1:0," + unix_socket(),
                                        "--state-dir=" + folder + "/state", "--worker=" + worker, "--workers=1"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  const std::string log = folder + "/server.log";
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  EXPECT_EQ(posix_spawn(&pid_, binary.c_str(), &actions, nullptr, argv.data(), environ), 0) << binary;
  posix_spawn_file_actions_destroy(&actions);
  while (running() && !fs::exists(this->folder("endpoints"))) LookAgain();
  std::istringstream lines(ReadFile(this->folder("endpoints")));
  std::getline(lines, tcp_);
}

ServerUnderTest::~ServerUnderTest() {
  if (running()) KillHard();
  if (::testing::Test::HasFailure()) std::fprintf(stderr, "%s\n", ReadFile(folder_ + "/server.log").c_str());
}

bool ServerUnderTest::running() {
  if (pid_ < 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return true;
  exit_status_ = WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  pid_ = -1;
  return false;
}

void ServerUnderTest::Signal(int signal) {
  if (running()) kill(pid_, signal);
}

int ServerUnderTest::Wait() {
  while (running()) LookAgain();
  return exit_status_;
}

void ServerUnderTest::KillHard() {
  Signal(SIGKILL);
  Wait();
}

std::vector<pid_t> ServerUnderTest::WorkerPids() const {
  std::vector<pid_t> pids;
  std::error_code error;
  for (const auto& thread : fs::directory_iterator(absl::StrCat("/proc/", pid_, "/task"), error)) {
    std::istringstream children(ReadFile(thread.path() / "children"));
    for (pid_t child; children >> child;) pids.push_back(child);
  }
  return pids;
}

double ServerUnderTest::Metric(const std::string& series) {
  const std::string log = folder_ + "/server.log";
  const size_t before = ReadFile(log).size();
  Signal(SIGUSR1);
  const std::string key = absl::StrCat("\n", series, " ");
  while (running()) {
    const std::string text = ReadFile(log);
    const size_t found = text.find(key, before);
    const size_t begin = found + key.size();
    if (found != std::string::npos && text.find('\n', begin) != std::string::npos)
      return std::strtod(&text[begin], nullptr);
    LookAgain();
  }
  ADD_FAILURE() << "the server has ended";
  return 0;
}

std::unique_ptr<v1::CompileService::Stub> ServerUnderTest::stub() const {
  return v1::CompileService::NewStub(NewChannel(tcp_));
}

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

v1::ErrorDetail DetailOf(const grpc::ClientContext& context) {
  v1::ErrorDetail detail;
  const auto found = context.GetServerTrailingMetadata().find("stepone-error-bin");
  if (found != context.GetServerTrailingMetadata().end()) {
    detail.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()));
  }
  return detail;
}

StreamResult Compile(v1::CompileService::Stub& stub, const v1::CompileRequest& request,
                     const std::function<void(const v1::CompileEvent&, grpc::ClientContext&)>& on_event,
                     const std::string& token) {
  grpc::ClientContext context;
  if (!token.empty()) context.AddMetadata("authorization", "Bearer " + token);
  auto reader = stub.Compile(&context, request);
  return ReadStream(*reader, context, on_event);
}

StreamResult Attach(v1::CompileService::Stub& stub, const v1::AttachRequest& request) {
  grpc::ClientContext context;
  auto reader = stub.Attach(&context, request);
  return ReadStream(*reader, context, nullptr);
}

int Health(const std::string& address, const std::string& service) {
  grpc::GenericStub stub(NewChannel(address));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  // HealthCheckRequest{service = 1}, written by hand: the message is not among ours.
  const std::string request = std::string("\x0a") + static_cast<char>(service.size()) + service;
  const grpc::Slice slice(request);
  auto call = stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, nullptr);
  void* tag;
  bool ok;
  queue.Next(&tag, &ok);
  grpc::Slice answer;
  if (!status.ok() || !response.DumpToSingleSlice(&answer).ok() || answer.size() < 2) return -1;
  return answer.begin()[1];
}

std::string Reflect(const std::string& address, const std::string& request) {
  grpc::GenericStub stub(NewChannel(address));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  auto call = stub.PrepareCall(&context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  bool ok = true;
  const auto finished = [&queue, &ok] {
    void* tag;
    return queue.Next(&tag, &ok) && ok;
  };
  call->StartCall(nullptr);
  if (!finished()) return "";
  const grpc::Slice slice(request);
  call->Write(grpc::ByteBuffer(&slice, 1), nullptr);
  if (!finished()) return "";
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  grpc::Slice answer;
  const bool answered = finished() && response.DumpToSingleSlice(&answer).ok();
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  finished();
  return answered ? std::string(answer.begin(), answer.end()) : "";
}

int CountLines(const std::string& path) {
  const std::string text = ReadFile(path);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

void AwaitFile(const std::string& path, int lines) {
  while (!fs::exists(path) || CountLines(path) < lines) LookAgain();
}

void Touch(const std::string& path) { std::ofstream(path).put('x'); }

std::string FreshFolder() {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  // Short: a unix socket's path lies in it.
  const std::string folder =
      absl::StrCat("/tmp/stepone_", getpid(), "_", info == nullptr ? "" : info->name()).substr(0, 80);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

}  // namespace stepone::testing
