// Talks to the compile service: sends a graph, waits for the artifact, verifies and maps it.
//
//   CompileClient client(*ConfigFromEnvironment());
//   std::shared_ptr<CompileCall> forward = client.Submit(forward_request);
//   std::shared_ptr<CompileCall> backward = client.Submit(backward_request);   // both are under way now
//   if (forward->Wait(absl::Seconds(30)) && forward->status().ok()) Run(forward->result()->program);
#ifndef STEPONE_CLIENT_COMPILE_CLIENT_H_
#define STEPONE_CLIENT_COMPILE_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client_config.h"
#include "client/plan.h"
#include "stepone/v1/compile_service.grpc.pb.h"

namespace stepone::client {

// A verified artifact, mapped and ready to run, and what is known about how it came to be.
struct CompiledGraph {
  std::shared_ptr<const Program> program;
  v1::Manifest manifest;  // without the bytes of constants, which are in program->plan
  std::string graph_key;
  v1::Source source = v1::SOURCE_UNSPECIFIED;
  int64_t queue_ms = 0;    // as told by the server
  int64_t compile_ms = 0;  // as told by the server
  double total_ms = 0;     // from Submit() to the mapped kernels
  int attempts = 0;
};

struct CallEvent {
  enum class Kind { kAccepted, kQueued, kStage, kRetry, kDone, kFailed };
  Kind kind = Kind::kAccepted;
  double at_ms = 0;    // since Submit()
  std::string text;    // ACCEPTED: graph key in hexadecimal; STAGE: its name; RETRY, FAILED: why
  int64_t first = 0;   // ACCEPTED: 1 when it joined; QUEUED: position; STAGE: kernels done; RETRY: delay in ms
  int64_t second = 0;  // QUEUED: expected ms; STAGE: kernels in all
};

// A request that is under way. Thread-safe. Dropping it does not cancel it.
class CompileCall {
 public:
  virtual ~CompileCall() = default;
  // True when the request has ended, well or badly, before the time is up.
  virtual bool Wait(absl::Duration timeout) = 0;
  virtual bool Done() const = 0;
  // The server stops working on it unless others wait for the same graph. The call ends with kCancelled, unless it has
  // ended before.
  virtual void Cancel() = 0;
  // kUnavailable while it runs.
  virtual absl::Status status() const = 0;
  // Null until it has ended well.
  virtual std::shared_ptr<const CompiledGraph> result() const = 0;
  virtual std::vector<CallEvent> events() const = 0;  // so far
};

// What a captured graph became, verified and mapped.
struct FoundBundle {
  v1::Bundle bundle;
  std::vector<std::shared_ptr<const CompiledGraph>> graphs;  // in the order of bundle.graphs
};

// Called on the request's thread for each event, in order; must not block.
using EventCallback = std::function<void(const CallEvent&)>;

// A connection to one service. Thread-safe. Nothing is connected before the first request. The destructor cancels what
// is under way and waits for it.
class CompileClient {
 public:
  explicit CompileClient(ClientConfig config);
  CompileClient(const CompileClient&) = delete;
  CompileClient& operator=(const CompileClient&) = delete;
  ~CompileClient();

  // Sends `request`, which needs graph and options; who asks, the target and known objects are filled in here unless
  // they are set. Returns at once. The call ends within config.request_timeout_ms, or twenty times that if it is no
  // run_options.blocking_step, or run_options.deadline_ms if that is shorter, with OK or
  //   kUnavailable         no connection, or the service went away and did not come back
  //   kDeadlineExceeded    the compile took too long; it may be stored when it is asked for again
  //   kPermissionDenied    not signed by a key that this client trusts
  //   kDataLoss            the artifact is damaged, also after it was asked for again
  // and whatever the service answers (proto/status.h). Broken streams are attached to again; kUnavailable and
  // kResourceExhausted are tried again after the server's delay, or a growing one with jitter.
  std::shared_ptr<CompileCall> Submit(v1::CompileRequest request, EventCallback on_event = nullptr);

  // Looks up without compiling. A call that has ended, or null when the service does not have it.
  absl::StatusOr<std::shared_ptr<CompileCall>> Find(v1::CompileRequest request);
  absl::StatusOr<v1::ExplainResponse> Explain(v1::CompileRequest request);
  absl::StatusOr<v1::GetCapabilitiesResponse> GetCapabilities();

  // Looks up what a captured graph became; nothing when the service does not know it. `request` needs trace and
  // options; the rest is filled in as for Submit(). The answer must come within `timeout`; connecting, the first time,
  // has the configuration's own limits. Errors as for Submit(); kPermissionDenied and kDataLoss are also for bundles
  // that are not signed by a trusted key, or that answer another request.
  absl::StatusOr<std::optional<FoundBundle>> FindBundle(v1::TraceRequest request, absl::Duration timeout);
  // Tells what a captured graph became. Returns at once; failures are only counted.
  void PutBundle(v1::PutBundleRequest request);
  absl::StatusOr<v1::ExplainResponse> ExplainBundle(v1::TraceRequest request);

  // Begins to connect in the background, and to start the local server if that is the one to use. Failures show at the
  // first request.
  void Connect();

  std::string endpoint() const;  // empty until a local server is known
  // True while requests fail at once because the service could not be reached a moment ago.
  bool circuit_open() const;

  struct Counters {
    int64_t requests = 0;
    int64_t retries = 0;
    int64_t verify_failures = 0;
    int64_t bundle_hits = 0;
    int64_t bundle_misses = 0;
    int64_t bundles_put = 0;
    int64_t bundle_put_failures = 0;
  };
  static Counters ProcessCounters();
  static void ResetProcessCounters();

 private:
  class Shared;

  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(grpc::Status (v1::CompileService::Stub::*rpc)(grpc::ClientContext*, const Request&,
                                                                             Response*),
                               const Request& request, absl::Duration timeout);
  absl::StatusOr<FoundBundle> Load(const v1::TraceRequest& request, v1::FindBundleResponse response);

  const std::shared_ptr<Shared> shared_;
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_COMPILE_CLIENT_H_
