// A real stepone-server in a process of its own, and clients that talk to it over gRPC.
#ifndef STEPONE_TESTS_TESTLIB_SERVER_UNDER_TEST_H_
#define STEPONE_TESTS_TESTLIB_SERVER_UNDER_TEST_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/status.h"
#include "stepone/v1/compile_service.grpc.pb.h"

namespace stepone::testing {

// What one call of Compile or Attach gave.
struct StreamResult {
  grpc::Status status;
  v1::ErrorDetail detail;  // from the trailing metadata, when the call failed
  std::vector<v1::CompileEvent> events;
  std::optional<v1::Done> done;
  std::string operation;
};

// The server and its workers die with the object. Not thread-safe, except stub() and the functions below.
class ServerUnderTest {
 public:
  // Starts `binary` on 127.0.0.1 and a unix socket, with `worker`, one worker process unless `options` say otherwise,
  // and its state in `folder`. Waits until it listens; fails the test if it ends before.
  ServerUnderTest(const std::string& binary, const std::string& worker, const std::string& folder,
                  std::vector<std::string> options = {});
  ~ServerUnderTest();

  bool running();
  void Signal(int signal);
  // Waits for the end; the exit status, or minus the signal's number.
  int Wait();
  // SIGKILL to the server alone; waits.
  void KillHard();
  std::vector<pid_t> WorkerPids() const;
  // A counter or gauge as the server writes it into its log on SIGUSR1; `series` is its name with labels. Waits for it.
  double Metric(const std::string& series);
  const std::string& tcp() const { return tcp_; }
  std::string unix_socket() const { return "unix:" + folder_ + "/s.sock"; }
  std::string folder(const std::string& name) const { return folder_ + "/state/" + name; }
  std::unique_ptr<v1::CompileService::Stub> stub() const;
  pid_t pid() const { return pid_; }

 private:
  const std::string folder_;
  pid_t pid_ = -1;
  int exit_status_ = 0;
  std::string tcp_;
};

// A channel of its own (connections are not shared between channels).
std::shared_ptr<grpc::Channel> NewChannel(const std::string& address);

// Reads a stream to its end. `on_event` may cancel the context.
StreamResult Compile(v1::CompileService::Stub& stub, const v1::CompileRequest& request,
                     const std::function<void(const v1::CompileEvent&, grpc::ClientContext&)>& on_event = nullptr,
                     const std::string& token = "");
StreamResult Attach(v1::CompileService::Stub& stub, const v1::AttachRequest& request);
// The error detail of a call that ended.
v1::ErrorDetail DetailOf(const grpc::ClientContext& context);

// The answer of the health service (grpc.health.v1) for `service`. 1: SERVING, 2: NOT_SERVING; -1: no answer.
int Health(const std::string& address, const std::string& service);
// The bytes that the reflection service answers to the bytes of one request; empty when it does not.
std::string Reflect(const std::string& address, const std::string& request);

// Waits until a file exists, or until it has `lines` lines.
void AwaitFile(const std::string& path, int lines = 0);
int CountLines(const std::string& path);
// Creates an empty file.
void Touch(const std::string& path);
// An empty folder of this test.
std::string FreshFolder();

}  // namespace stepone::testing

#endif  // STEPONE_TESTS_TESTLIB_SERVER_UNDER_TEST_H_
