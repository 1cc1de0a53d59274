// One request of a CompileClient: what its thread does. Internal to compile_client.cc.
#ifndef STEPONE_CLIENT_COMPILE_CALL_H_
#define STEPONE_CLIENT_COMPILE_CALL_H_

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "absl/random/random.h"
#include "absl/synchronization/mutex.h"
#include "client/compile_client.h"
#include "client/connection.h"
#include "client/object_loader.h"
#include "client/verifier.h"

namespace stepone::client {

struct AtomicClientCounters {
  std::atomic<int64_t> requests{0}, retries{0}, verify_failures{0};
  std::atomic<int64_t> bundle_hits{0}, bundle_misses{0}, bundles_put{0}, bundle_put_failures{0};
};
AtomicClientCounters& GlobalClientCounters();

// What to tell the service not to send: objects that are mapped here, up to a number that keeps requests small. Holding
// the result keeps them mapped.
std::vector<std::shared_ptr<MappedObject>> KnownObjects();

// What an artifact of `graph` must look like.
ExpectedArtifact ExpectedOf(const v1::Graph& graph);

// Run() drives the request to its end; everything else is CompileCall. Thread-safe.
class CallImpl final : public CompileCall {
 public:
  CallImpl(std::shared_ptr<Connection> connection, v1::CompileRequest request, v1::Target host, EventCallback on_event);

  // REQUIRES: called once, before or instead of which FinishWith().
  void Run();
  // For look-ups: verifies and maps an artifact that is here already.
  void FinishWith(const Connection::Session& session, v1::Artifact artifact, v1::Source source,
                  const ExpectedArtifact& expected);
  // Ends the call without a request having been made.
  void Fail(absl::Status status) { End(std::move(status), nullptr); }

  bool Wait(absl::Duration timeout) override;
  bool Done() const override;
  void Cancel() override;
  absl::Status status() const override;
  std::shared_ptr<const CompiledGraph> result() const override;
  std::vector<CallEvent> events() const override;

 private:
  // How an attempt ended.
  struct Attempt {
    absl::Status status;
    bool again = false;                           // another attempt makes sense
    absl::Duration delay = absl::ZeroDuration();  // before it; zero: the caller's own back-off
    bool at_once = false;                         // without any delay
  };

  Attempt TryOnce();
  Attempt Follow(const Connection::Session& session);
  Attempt AfterStream(const Connection::Session& session, const absl::Status& status, v1::CompileEvent last);
  Attempt Finish(const Connection::Session& session, v1::Done done);
  absl::StatusOr<std::shared_ptr<CompiledGraph>> Load(const Connection::Session& session, v1::Artifact artifact,
                                                      const ExpectedArtifact& expected);
  absl::Status FetchMissing(const Connection::Session& session, const v1::Manifest& manifest,
                            std::vector<v1::ObjectBytes>& objects);
  absl::StatusOr<std::string> FetchObject(const Connection::Session& session, const v1::ObjectRef& object);
  absl::Status FetchFrom(const Connection::Session& session, const v1::ObjectRef& object, std::string& bytes);
  void TellServerToCancel(const Connection::Session& session);
  void OnEvent(const v1::CompileEvent& event);
  void Emit(CallEvent event);
  bool Cancelled() const;
  bool Pause(absl::Duration delay);  // false when it was cancelled meanwhile
  void End(absl::Status status, std::shared_ptr<const CompiledGraph> result);
  double ElapsedMs() const;

  const std::shared_ptr<Connection> connection_;
  const v1::Target host_;
  const EventCallback on_event_;
  const absl::Time start_;
  const absl::Time deadline_;

  // Touched by the request's thread only.
  v1::CompileRequest request_;
  std::vector<std::shared_ptr<MappedObject>> known_;  // keeps known_objects mapped until the artifact is
  std::string operation_;
  int attempts_ = 0;
  bool recompiled_ = false;
  absl::BitGen random_;

  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;  // of the stream that is open
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const CompiledGraph> result_ ABSL_GUARDED_BY(mutex_);
  std::vector<CallEvent> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_COMPILE_CALL_H_
