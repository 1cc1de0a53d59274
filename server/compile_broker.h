// The policy of the service, without gRPC: look up, join, admit, compile, store, answer.
//
// A request goes through these steps; the first that can answer does:
//   limits -> key -> what the job was given before -> a running flight of the same key -> a remembered failure ->
//   memory, disk -> queue -> worker -> signature -> store (first writer wins).
// The look-up in the stores is part of the flight, so a burst of equal requests leads to one read or one compile.
#ifndef STEPONE_SERVER_COMPILE_BROKER_H_
#define STEPONE_SERVER_COMPILE_BROKER_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cache/cache_key.h"
#include "cache/kernel_cache.h"
#include "cache/store.h"
#include "proto/signing.h"
#include "server/artifact_desk.h"
#include "server/bundle_desk.h"
#include "server/dispatcher.h"
#include "server/event_sink.h"
#include "server/executor.h"
#include "server/failure_memory.h"
#include "server/metrics.h"
#include "server/request_limits.h"
#include "server/single_flight.h"
#include "server/timer_queue.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::server {

// Thread-safe. Nothing here blocks its caller: work is done on the executor, on workers' slots and on the timer's
// thread.
class CompileBroker {
 public:
  struct Options {
    RequestLimits limits;
    std::string version;                       // of the server, for people
    size_t inline_object_bytes = 1u << 20;     // objects sent with the answer; the others are fetched
    absl::Duration grace = absl::Seconds(10);  // for clients that come back, for compiles without a waiter
    absl::Duration queue_timeout = absl::Minutes(10);
    absl::Duration failure_time_to_live = absl::Minutes(10);
    size_t max_remembered_failures = 10'000;
    size_t max_pin_bytes = 64u << 20;
    size_t max_pending_bytes = 1u << 30;  // requests being worked on, all together
    bool share_kernels = false;           // between tenants
  };
  // What the broker stands on; all must outlive it.
  struct Parts {
    Dispatcher* dispatcher = nullptr;
    Store* store = nullptr;
    const SigningKey* key = nullptr;
    Executor* executor = nullptr;
    TimerQueue* timers = nullptr;
    Metrics* metrics = nullptr;
  };

  CompileBroker(Options options, Parts parts);

  // What the workers said of themselves. REQUIRES: called once, before any request.
  void SetWorkers(const v1::Hello& hello);

  v1::GetCapabilitiesResponse Capabilities() const;

  // Starts an operation, whose events and end go to `sink`, and returns its id. Refusals go to the sink too.
  std::string Compile(v1::CompileRequest request, std::shared_ptr<EventSink> sink);
  // The operation's stream broke. If nobody attaches within the grace time, the operation is over.
  void Detach(const std::string& operation, const EventSink* sink);
  // Sends the operation's events to `sink` from now on; a stream that was still attached ends with kAborted.
  // The sink ends with kNotFound when there is no such operation of that tenant.
  void Attach(const v1::AttachRequest& request, std::shared_ptr<EventSink> sink);
  // Ends the operation; false when there is none of that tenant, or when it is over.
  bool Cancel(const v1::CancelRequest& request);

  template <typename T>
  using Callback = std::function<void(absl::StatusOr<T>)>;
  void Find(v1::CompileRequest request, Callback<v1::FindResponse> done);
  void Explain(v1::CompileRequest request, Callback<v1::ExplainResponse> done);
  void Fetch(const v1::FetchRequest& request, Callback<Blob> done);
  void FindBundle(v1::TraceRequest request, Callback<v1::FindBundleResponse> done);
  void PutBundle(v1::PutBundleRequest request, Callback<v1::PutBundleResponse> done);
  void ExplainBundle(v1::TraceRequest request, Callback<v1::ExplainResponse> done);

  // Refuses new compiles with kUnavailable; what runs goes on.
  void Drain();
  // True once nothing is waiting or running, within `timeout`.
  bool AwaitQuiet(absl::Duration timeout);
  bool quiet() const;

 private:
  absl::StatusOr<KeyMaterial> Check(const v1::CompileRequest& request) const;
  // Charges the request's bytes until the last reference goes; null when too much is pending.
  template <typename Request>
  std::shared_ptr<const Request> Charge(Request request);
  template <typename Request, typename Response>
  void AskBundles(Request request, absl::StatusOr<Response> (BundleDesk::*ask)(const Request&),
                  Callback<Response> done);
  void Admit(const OperationPtr& operation, const std::shared_ptr<const v1::CompileRequest>& request);
  FlightPtr JoinOrLead(const OperationPtr& operation, const std::shared_ptr<const v1::CompileRequest>& request,
                       KeyMaterial material) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells a stream that its operation was accepted, and how far its flight is.
  void Welcome(const Operation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fly(const FlightPtr& flight);
  void SubmitFlight(const FlightPtr& flight);
  CompileTask MakeTask(const FlightPtr& flight);
  void OnQueued(const FlightPtr& flight, int position, absl::Duration eta);
  void OnStage(const FlightPtr& flight, const v1::Stage& stage);
  v1::KernelAnswer OnLookup(const FlightPtr& flight, const v1::KernelLookup& lookup);
  void OnDone(const FlightPtr& flight, CompileOutcome outcome);
  void KeepKernels(const FlightPtr& flight, v1::JobResult result);
  void LandFlight(const FlightPtr& flight, Landing landing, bool remember);
  void Deliver(const Operation& operation, std::shared_ptr<EventSink> sink, const Landing& landing);
  void Progress(const FlightPtr& flight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Refuse(const OperationPtr& operation, const absl::Status& status);
  void Expire(const std::string& operation);
  void Abandon(const FlightPtr& flight);
  std::string Scope(const FlightPtr& flight) const;

  const Options options_;
  const Parts parts_;
  ArtifactDesk desk_;
  BundleDesk bundles_;
  KernelCache kernels_;
  Offer offer_;              // constant after SetWorkers()
  std::string fingerprint_;  // likewise
  EventOutbox outbox_;
  std::atomic<size_t> pending_bytes_{0};

  // Nothing is called under it but the tables, the timers and the outbox's Push. Taken before the dispatcher's.
  mutable absl::Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  SingleFlight table_ ABSL_GUARDED_BY(mu_);
  FailureMemory failures_ ABSL_GUARDED_BY(mu_);
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_COMPILE_BROKER_H_
