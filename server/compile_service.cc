#include "server/compile_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "server/grpc_status.h"
#include "server/stream_reactor.h"

namespace stepone::server {
namespace {

// An event stream as the broker sees it.
class EventStream final : public StreamReactor<v1::CompileEvent>, public EventSink {
 public:
  using StreamReactor::StreamReactor;

  void OnEvent(const v1::CompileEvent& event) override { Write(event, event.has_stage() || event.has_queued()); }
  void OnEnd(const absl::Status& status) override { End(status); }
};

using ChunkStream = StreamReactor<v1::FetchChunk>;

// Small objects in one piece, large ones in pieces that keep the pipe full.
size_t ChunkBytes(size_t total) { return std::clamp<size_t>(total / 16, 64u << 10, 1u << 20); }

}  // namespace

void CallCounter::End() {
  last_ns_ = absl::ToUnixNanos(absl::Now());
  --open_;
}

CompileService::CompileService(CompileBroker* broker, Authenticator* authenticator, TimerQueue* timers,
                               Metrics* metrics, absl::Duration stall)
    : broker_(broker), authenticator_(authenticator), timers_(timers), metrics_(metrics), stall_(stall) {}

absl::Status CompileService::Authorize(const grpc::CallbackServerContext& context, const std::string& tenant,
                                       const char* rpc) {
  metrics_->requests.Add(rpc);
  const auto header = context.client_metadata().find("authorization");
  const std::string value =
      header == context.client_metadata().end() ? "" : std::string(header->second.data(), header->second.size());
  absl::Status status = authenticator_->Check(value, tenant);
  if (!status.ok()) metrics_->refusals.Add(absl::IsUnauthenticated(status) ? "unauthenticated" : "permission");
  return status;
}

grpc::ServerUnaryReactor* CompileService::GetCapabilities(grpc::CallbackServerContext* context,
                                                          const v1::GetCapabilitiesRequest* request,
                                                          v1::GetCapabilitiesResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  calls_.Begin();
  absl::Status status = Authorize(*context, request->context().tenant(), "GetCapabilities");
  if (status.ok()) *response = broker_->Capabilities();
  calls_.End();
  reactor->Finish(ToGrpcStatus(status, *context));
  return reactor;
}

template <typename Request, typename Response>
grpc::ServerUnaryReactor* CompileService::Ask(grpc::CallbackServerContext* context, const std::string& tenant,
                                              const char* rpc, const Request& request, Response* response,
                                              void (CompileBroker::*ask)(Request, CompileBroker::Callback<Response>)) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  calls_.Begin();
  const auto finish = [this, reactor, context, response](absl::StatusOr<Response> answer) {
    if (answer.ok()) *response = *std::move(answer);
    calls_.End();
    reactor->Finish(ToGrpcStatus(answer.status(), *context));
  };
  absl::Status status = Authorize(*context, tenant, rpc);
  if (status.ok()) {
    (broker_->*ask)(request, finish);
  } else {
    finish(status);
  }
  return reactor;
}

grpc::ServerUnaryReactor* CompileService::Find(grpc::CallbackServerContext* context, const v1::CompileRequest* request,
                                               v1::FindResponse* response) {
  return Ask(context, request->context().tenant(), "Find", *request, response, &CompileBroker::Find);
}

grpc::ServerUnaryReactor* CompileService::Explain(grpc::CallbackServerContext* context,
                                                  const v1::CompileRequest* request, v1::ExplainResponse* response) {
  return Ask(context, request->context().tenant(), "Explain", *request, response, &CompileBroker::Explain);
}

grpc::ServerUnaryReactor* CompileService::FindBundle(grpc::CallbackServerContext* context,
                                                     const v1::TraceRequest* request,
                                                     v1::FindBundleResponse* response) {
  return Ask(context, request->context().tenant(), "FindBundle", *request, response, &CompileBroker::FindBundle);
}

grpc::ServerUnaryReactor* CompileService::PutBundle(grpc::CallbackServerContext* context,
                                                    const v1::PutBundleRequest* request,
                                                    v1::PutBundleResponse* response) {
  return Ask(context, request->trace().context().tenant(), "PutBundle", *request, response, &CompileBroker::PutBundle);
}

grpc::ServerUnaryReactor* CompileService::ExplainBundle(grpc::CallbackServerContext* context,
                                                        const v1::TraceRequest* request,
                                                        v1::ExplainResponse* response) {
  return Ask(context, request->context().tenant(), "ExplainBundle", *request, response, &CompileBroker::ExplainBundle);
}

grpc::ServerUnaryReactor* CompileService::Cancel(grpc::CallbackServerContext* context, const v1::CancelRequest* request,
                                                 v1::CancelResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  calls_.Begin();
  absl::Status status = Authorize(*context, request->context().tenant(), "Cancel");
  if (status.ok()) response->set_cancelled(broker_->Cancel(*request));
  calls_.End();
  reactor->Finish(ToGrpcStatus(status, *context));
  return reactor;
}

grpc::ServerWriteReactor<v1::CompileEvent>* CompileService::Compile(grpc::CallbackServerContext* context,
                                                                    const v1::CompileRequest* request) {
  auto stream = std::make_shared<EventStream>(context);
  // Set before gRPC can report that the client went away, which it does only after this handler returned.
  auto operation = std::make_shared<std::string>();
  calls_.Begin();
  metrics_->open_streams.Increment();
  stream->Start(
      timers_, stall_,
      [this] {
        metrics_->open_streams.Decrement();
        calls_.End();
      },
      [this, operation, sink = stream.get()] { broker_->Detach(*operation, sink); });
  absl::Status status = Authorize(*context, request->context().tenant(), "Compile");
  if (status.ok()) {
    *operation = broker_->Compile(*request, stream);
  } else {
    stream->End(status);
  }
  return stream.get();
}

grpc::ServerWriteReactor<v1::CompileEvent>* CompileService::Attach(grpc::CallbackServerContext* context,
                                                                   const v1::AttachRequest* request) {
  auto stream = std::make_shared<EventStream>(context);
  calls_.Begin();
  metrics_->open_streams.Increment();
  stream->Start(
      timers_, stall_,
      [this] {
        metrics_->open_streams.Decrement();
        calls_.End();
      },
      [this, operation = request->operation(), sink = stream.get()] { broker_->Detach(operation, sink); });
  absl::Status status = Authorize(*context, request->context().tenant(), "Attach");
  if (status.ok()) {
    broker_->Attach(*request, stream);
  } else {
    stream->End(status);
  }
  return stream.get();
}

grpc::ServerWriteReactor<v1::FetchChunk>* CompileService::Fetch(grpc::CallbackServerContext* context,
                                                                const v1::FetchRequest* request) {
  auto stream = std::make_shared<ChunkStream>(context);
  calls_.Begin();
  metrics_->open_streams.Increment();
  stream->Start(
      timers_, stall_,
      [this] {
        metrics_->open_streams.Decrement();
        calls_.End();
      },
      nullptr);
  absl::Status status = Authorize(*context, request->context().tenant(), "Fetch");
  if (!status.ok()) {
    stream->End(status);
    return stream.get();
  }
  broker_->Fetch(*request, [stream, offset = request->offset()](absl::StatusOr<Blob> object) {
    if (!object.ok()) return stream->End(object.status());
    // One chunk is in memory at a time; the object itself is shared by all who read it.
    bool first = true;
    stream->Pull(
        [object = *object, at = static_cast<size_t>(offset), first]() mutable -> std::optional<v1::FetchChunk> {
          if (at >= object->size() && !first) return std::nullopt;
          first = false;
          v1::FetchChunk chunk;
          chunk.set_total_bytes(object->size());
          chunk.set_data(object->substr(at, ChunkBytes(object->size())));
          at += chunk.data().size();
          return chunk;
        });
  });
  return stream.get();
}

}  // namespace stepone::server
