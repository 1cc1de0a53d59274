// The gRPC face of the broker: translates, calls, translates back.
#ifndef STEPONE_SERVER_COMPILE_SERVICE_H_
#define STEPONE_SERVER_COMPILE_SERVICE_H_

#include <atomic>

#include "absl/time/time.h"
#include "server/authenticator.h"
#include "server/compile_broker.h"
#include "server/metrics.h"
#include "server/timer_queue.h"
#include "stepone/v1/compile_service.grpc.pb.h"

namespace stepone::server {

// Counts calls that are open, and when the last one ended. Thread-safe.
class CallCounter {
 public:
  void Begin() { ++open_; }
  void End();
  int open() const { return open_; }
  // When a call last began to be over; the start of the counter if none was.
  absl::Time last() const { return absl::FromUnixNanos(last_ns_); }

 private:
  std::atomic<int> open_{0};
  std::atomic<int64_t> last_ns_{absl::ToUnixNanos(absl::Now())};
};

// Handlers never block: they hand over to the broker and return. Thread-safe.
class CompileService final : public v1::CompileService::CallbackService {
 public:
  // All must outlive the service. A stream whose client takes nothing for `stall` is cancelled.
  CompileService(CompileBroker* broker, Authenticator* authenticator, TimerQueue* timers, Metrics* metrics,
                 absl::Duration stall);

  grpc::ServerUnaryReactor* GetCapabilities(grpc::CallbackServerContext* context,
                                            const v1::GetCapabilitiesRequest* request,
                                            v1::GetCapabilitiesResponse* response) override;
  grpc::ServerUnaryReactor* Find(grpc::CallbackServerContext* context, const v1::CompileRequest* request,
                                 v1::FindResponse* response) override;
  grpc::ServerWriteReactor<v1::CompileEvent>* Compile(grpc::CallbackServerContext* context,
                                                      const v1::CompileRequest* request) override;
  grpc::ServerWriteReactor<v1::CompileEvent>* Attach(grpc::CallbackServerContext* context,
                                                     const v1::AttachRequest* request) override;
  grpc::ServerUnaryReactor* Cancel(grpc::CallbackServerContext* context, const v1::CancelRequest* request,
                                   v1::CancelResponse* response) override;
  grpc::ServerWriteReactor<v1::FetchChunk>* Fetch(grpc::CallbackServerContext* context,
                                                  const v1::FetchRequest* request) override;
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context, const v1::CompileRequest* request,
                                    v1::ExplainResponse* response) override;
  grpc::ServerUnaryReactor* FindBundle(grpc::CallbackServerContext* context, const v1::TraceRequest* request,
                                       v1::FindBundleResponse* response) override;
  grpc::ServerUnaryReactor* PutBundle(grpc::CallbackServerContext* context, const v1::PutBundleRequest* request,
                                      v1::PutBundleResponse* response) override;
  grpc::ServerUnaryReactor* ExplainBundle(grpc::CallbackServerContext* context, const v1::TraceRequest* request,
                                          v1::ExplainResponse* response) override;

  const CallCounter& calls() const { return calls_; }

 private:
  // A call with one answer, which the broker gives through `ask`.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* Ask(grpc::CallbackServerContext* context, const std::string& tenant, const char* rpc,
                                const Request& request, Response* response,
                                void (CompileBroker::*ask)(Request, CompileBroker::Callback<Response>));
  absl::Status Authorize(const grpc::CallbackServerContext& context, const std::string& tenant, const char* rpc);

  CompileBroker* const broker_;
  Authenticator* const authenticator_;
  TimerQueue* const timers_;
  Metrics* const metrics_;
  const absl::Duration stall_;
  CallCounter calls_;
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_COMPILE_SERVICE_H_
