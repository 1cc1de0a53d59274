// The way to one service: channel, credentials, keys to trust, and the memory of its being unreachable.
#ifndef STEPONE_CLIENT_CONNECTION_H_
#define STEPONE_CLIENT_CONNECTION_H_

#include <memory>
#include <optional>
#include <string>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/circuit_breaker.h"
#include "client/client_config.h"
#include "proto/signing.h"
#include "stepone/v1/compile_service.grpc.pb.h"

namespace stepone::client {

// The status of a finished call, with the server's ErrorDetail attached when it sent one.
absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context);

// Thread-safe. Nothing happens before the first Open().
class Connection {
 public:
  explicit Connection(ClientConfig config);

  struct Session {
    std::shared_ptr<v1::CompileService::Stub> stub;
    std::shared_ptr<const TrustedKeys> keys;
  };

  // A session whose channel is connected, after starting the local server if that is the one to use. Waits at most the
  // configured connect time (or start time) and not beyond `deadline`. kUnavailable when there is no connection; then
  // later calls fail at once for a while. kFailedPrecondition for a remote service whose keys are not known.
  absl::StatusOr<Session> Open(absl::Time deadline);

  // Asks the service for its key again if it is one whose word is good for that (a private socket); otherwise the keys
  // of the configuration stay.
  absl::StatusOr<std::shared_ptr<const TrustedKeys>> RefreshKeys(absl::Time deadline);

  // Metadata and deadline of a call.
  void Prepare(grpc::ClientContext& context, absl::Time deadline) const;

  std::string endpoint() const;  // empty before a local server is known
  bool circuit_open() const;
  const ClientConfig& config() const { return config_; }

 private:
  std::optional<Session> ReadySession();
  absl::StatusOr<Session> Connect(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(connect_mutex_);
  absl::Status MakeChannel(const std::string& endpoint) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<const TrustedKeys>> LearnKeys(v1::CompileService::Stub& stub,
                                                               const std::string& endpoint, absl::Time deadline);

  const ClientConfig config_;
  CircuitBreaker breaker_;
  absl::Mutex connect_mutex_;  // held by the one thread that connects; taken before mutex_
  mutable absl::Mutex mutex_;
  std::string endpoint_ ABSL_GUARDED_BY(mutex_);
  std::string token_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<grpc::Channel> channel_ ABSL_GUARDED_BY(mutex_);
  Session session_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_CONNECTION_H_
