#include "client/compile_call.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/time/clock.h"
#include "proto/digest.h"
#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

constexpr absl::Duration kFirstDelay = absl::Milliseconds(100);
constexpr absl::Duration kLongestDelay = absl::Seconds(5);
constexpr int kMaxAttempts = 10;
constexpr int kMaxFetchAttempts = 4;
constexpr size_t kMaxKnownObjects = 4096;
constexpr size_t kMaxEvents = 1000;
// What no step waits for is compiled in the kernel's idle class, where it may stand still for long while a trainer uses
// all cores. A client that went away meanwhile would have it cancelled, and would begin from the start. As the
// server's.
constexpr int kLatePatience = 20;

// The service, or the way to it, may do better next time.
bool IsTransient(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kResourceExhausted;
}

absl::Duration RetryAfter(const absl::Status& status) {
  return absl::Milliseconds(std::max<int64_t>(0, ToErrorDetail(status).retry_after_ms()));
}

absl::Time DeadlineOf(const v1::CompileRequest& request, const ClientConfig& config, absl::Time start) {
  int64_t limit_ms = config.request_timeout_ms * (request.run_options().blocking_step() ? 1 : kLatePatience);
  if (request.run_options().deadline_ms() > 0) limit_ms = std::min(limit_ms, request.run_options().deadline_ms());
  return start + absl::Milliseconds(limit_ms);
}

}  // namespace

std::vector<std::shared_ptr<MappedObject>> KnownObjects() {
  std::vector<std::shared_ptr<MappedObject>> known = ObjectLoader::Global().Mapped();
  if (known.size() > kMaxKnownObjects) known.resize(kMaxKnownObjects);
  return known;
}

ExpectedArtifact ExpectedOf(const v1::Graph& graph) {
  return {graph.role(), graph.inputs_size(), graph.outputs_size()};
}

AtomicClientCounters& GlobalClientCounters() {
  static AtomicClientCounters counters;
  return counters;
}

CallImpl::CallImpl(std::shared_ptr<Connection> connection, v1::CompileRequest request, v1::Target host,
                   EventCallback on_event)
    : connection_(std::move(connection)),
      host_(std::move(host)),
      on_event_(std::move(on_event)),
      start_(absl::Now()),
      deadline_(DeadlineOf(request, connection_->config(), start_)),
      request_(std::move(request)) {
  known_ = KnownObjects();
  for (const auto& object : known_) request_.add_known_objects(object->digest().Raw());
}

void CallImpl::Run() {
  ++GlobalClientCounters().requests;
  absl::Duration backoff = kFirstDelay;
  while (true) {
    ++attempts_;
    Attempt attempt = TryOnce();
    if (attempt.status.ok()) return;  // Finish() has ended the call
    if (Cancelled()) return Fail(absl::CancelledError("the request was cancelled"));
    const absl::Duration jittered = backoff * absl::Uniform(random_, 0.5, 1.5);
    const absl::Duration delay = attempt.at_once ? absl::ZeroDuration() : std::max(attempt.delay, jittered);
    if (!attempt.again || attempts_ >= kMaxAttempts || absl::Now() + delay >= deadline_) {
      return Fail(std::move(attempt.status));
    }
    ++GlobalClientCounters().retries;
    Emit({CallEvent::Kind::kRetry, 0, std::string(attempt.status.message()), absl::ToInt64Milliseconds(delay), 0});
    if (!Pause(delay)) return Fail(absl::CancelledError("the request was cancelled"));
    backoff = std::min(backoff * 2, kLongestDelay);
  }
}

CallImpl::Attempt CallImpl::TryOnce() {
  absl::StatusOr<Connection::Session> session = connection_->Open(deadline_);
  if (!session.ok()) return {session.status()};  // Open() has waited already
  if (Cancelled()) return {absl::CancelledError("the request was cancelled")};
  return Follow(*session);
}

// Opens a stream, or attaches to the operation of a broken one, and reads it to its end.
CallImpl::Attempt CallImpl::Follow(const Connection::Session& session) {
  grpc::ClientContext context;
  connection_->Prepare(context, deadline_);
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return {absl::CancelledError("the request was cancelled")};
    context_ = &context;
  }
  std::unique_ptr<grpc::ClientReader<v1::CompileEvent>> reader;
  const bool attached = !operation_.empty();
  if (attached) {
    v1::AttachRequest attach;
    *attach.mutable_context() = request_.context();
    attach.set_operation(operation_);
    *attach.mutable_known_objects() = request_.known_objects();
    reader = session.stub->Attach(&context, attach);
  } else {
    reader = session.stub->Compile(&context, request_);
  }
  v1::CompileEvent event, last;
  while (reader->Read(&event)) {
    OnEvent(event);
    if (event.has_done() || event.has_failed()) last.Swap(&event);
  }
  const grpc::Status finished = reader->Finish();
  {
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
  }
  if (Cancelled()) {
    TellServerToCancel(session);
    return {absl::CancelledError("the request was cancelled")};
  }
  const absl::Status status = ToStatus(finished, context);
  if (attached && status.code() == absl::StatusCode::kNotFound) {
    operation_.clear();  // the server forgot it, perhaps because it was restarted: ask anew
    return {status, /*again=*/true, absl::ZeroDuration(), /*at_once=*/true};
  }
  return AfterStream(session, status, std::move(last));
}

CallImpl::Attempt CallImpl::AfterStream(const Connection::Session& session, const absl::Status& status,
                                        v1::CompileEvent last) {
  if (last.has_done()) return Finish(session, std::move(*last.mutable_done()));
  if (last.has_failed()) {
    const absl::Status failed = FromErrorDetail(last.failed());
    operation_.clear();
    return {failed, IsTransient(failed), RetryAfter(failed)};
  }
  if (status.ok()) {
    return {absl::UnavailableError("the service closed the stream without an answer"), /*again=*/true};
  }
  if (!IsTransient(status)) return {status};
  if (status.code() == absl::StatusCode::kResourceExhausted) operation_.clear();
  return {status, /*again=*/true, RetryAfter(status)};
}

CallImpl::Attempt CallImpl::Finish(const Connection::Session& session, v1::Done done) {
  operation_.clear();
  absl::StatusOr<std::shared_ptr<CompiledGraph>> graph =
      Load(session, std::move(*done.mutable_artifact()), ExpectedOf(request_.graph()));
  if (!graph.ok()) {
    if (graph.status().code() == absl::StatusCode::kUnavailable) return {graph.status(), /*again=*/true};
    ++GlobalClientCounters().verify_failures;
    // Damage is not the request's fault: once, the server is asked to make the artifact anew.
    const bool again = graph.status().code() == absl::StatusCode::kDataLoss && !recompiled_;
    recompiled_ = true;
    request_.mutable_run_options()->set_recompile(true);
    return {graph.status(), again, absl::ZeroDuration(), /*at_once=*/true};
  }
  (*graph)->source = done.source();
  (*graph)->queue_ms = done.queue_ms();
  (*graph)->compile_ms = done.compile_ms();
  End(absl::OkStatus(), *std::move(graph));
  return {absl::OkStatus()};
}

void CallImpl::FinishWith(const Connection::Session& session, v1::Artifact artifact, v1::Source source,
                          const ExpectedArtifact& expected) {
  absl::StatusOr<std::shared_ptr<CompiledGraph>> graph = Load(session, std::move(artifact), expected);
  if (!graph.ok()) return Fail(graph.status());
  (*graph)->source = source;
  End(absl::OkStatus(), *std::move(graph));
}

absl::StatusOr<std::shared_ptr<CompiledGraph>> CallImpl::Load(const Connection::Session& session, v1::Artifact artifact,
                                                              const ExpectedArtifact& expected) {
  absl::StatusOr<VerifiedManifest> verified =
      VerifyManifest(artifact.signed_manifest(), *session.keys, host_, expected);
  if (verified.status().code() == absl::StatusCode::kPermissionDenied) {
    // The user's own server may have got a new key since this process met it.
    absl::StatusOr<std::shared_ptr<const TrustedKeys>> keys = connection_->RefreshKeys(deadline_);
    if (keys.ok()) verified = VerifyManifest(artifact.signed_manifest(), **keys, host_, expected);
  }
  if (!verified.ok()) return verified.status();
  std::vector<v1::ObjectBytes> objects(std::make_move_iterator(artifact.mutable_objects()->begin()),
                                       std::make_move_iterator(artifact.mutable_objects()->end()));
  if (absl::Status status = FetchMissing(session, verified->manifest, objects); !status.ok()) return status;
  absl::StatusOr<KernelSet> kernels = MapKernels(*verified, objects);
  if (!kernels.ok()) return kernels.status();

  auto graph = std::make_shared<CompiledGraph>();
  graph->program = std::make_shared<const Program>(Program{std::move(verified->plan), *std::move(kernels)});
  graph->manifest = std::move(verified->manifest);
  graph->manifest.clear_constants();
  graph->graph_key = std::move(verified->graph_key);
  graph->total_ms = ElapsedMs();
  graph->attempts = attempts_;
  return graph;
}

absl::Status CallImpl::FetchMissing(const Connection::Session& session, const v1::Manifest& manifest,
                                    std::vector<v1::ObjectBytes>& objects) {
  absl::flat_hash_set<std::string> have;
  for (const v1::ObjectBytes& object : objects) have.insert(object.digest());
  for (const v1::ObjectRef& object : manifest.objects()) {
    if (!have.insert(object.digest()).second) continue;
    // The verifier has seen that this is a digest.
    if (std::shared_ptr<MappedObject> mapped = ObjectLoader::Global().Find(*Digest::FromRaw(object.digest()))) {
      known_.push_back(std::move(mapped));
      continue;
    }
    absl::StatusOr<std::string> bytes = FetchObject(session, object);
    if (!bytes.ok()) return bytes.status();
    v1::ObjectBytes fetched;
    fetched.set_digest(object.digest());
    fetched.set_data(*std::move(bytes));
    objects.push_back(std::move(fetched));
  }
  return absl::OkStatus();
}

// A fetch that breaks off goes on where it was.
absl::StatusOr<std::string> CallImpl::FetchObject(const Connection::Session& session, const v1::ObjectRef& object) {
  std::string bytes;
  absl::Status status;
  for (int attempt = 0; attempt < kMaxFetchAttempts; ++attempt) {
    status = FetchFrom(session, object, bytes);
    if (status.ok()) return bytes;
    if (!IsTransient(status)) break;
    if (!Pause(kFirstDelay * (1 << attempt))) return absl::CancelledError("the request was cancelled");
  }
  return status;
}

absl::Status CallImpl::FetchFrom(const Connection::Session& session, const v1::ObjectRef& object, std::string& bytes) {
  v1::FetchRequest fetch;
  *fetch.mutable_context() = request_.context();
  fetch.set_digest(object.digest());
  fetch.set_offset(bytes.size());
  grpc::ClientContext context;
  connection_->Prepare(context, deadline_);
  const auto reader = session.stub->Fetch(&context, fetch);
  v1::FetchChunk chunk;
  while (bytes.size() <= object.size_bytes() && reader->Read(&chunk)) bytes += chunk.data();
  if (bytes.size() > object.size_bytes()) {
    context.TryCancel();
    reader->Finish();
    return absl::DataLossError("a fetched object is larger than its manifest says");
  }
  if (absl::Status status = ToStatus(reader->Finish(), context); !status.ok()) return status;
  return bytes.size() == object.size_bytes() ? absl::OkStatus() : absl::UnavailableError("a fetched object is cut off");
}

void CallImpl::TellServerToCancel(const Connection::Session& session) {
  if (operation_.empty()) return;
  v1::CancelRequest cancel;
  *cancel.mutable_context() = request_.context();
  cancel.set_operation(operation_);
  grpc::ClientContext context;
  connection_->Prepare(context, absl::Now() + absl::Seconds(1));
  v1::CancelResponse response;
  session.stub->Cancel(&context, cancel, &response);  // a server that can't be told notices the closed stream
}

void CallImpl::OnEvent(const v1::CompileEvent& event) {
  if (!event.operation().empty()) operation_ = event.operation();
  switch (event.event_case()) {
    case v1::CompileEvent::kAccepted: {
      const std::optional<Digest> key = Digest::FromRaw(event.accepted().graph_key());
      return Emit({CallEvent::Kind::kAccepted, 0, key ? key->Hex() : "", event.accepted().joined() ? 1 : 0, 0});
    }
    case v1::CompileEvent::kQueued:
      return Emit({CallEvent::Kind::kQueued, 0, "", event.queued().position(), event.queued().eta_ms()});
    case v1::CompileEvent::kStage:
      return Emit({CallEvent::Kind::kStage, 0, event.stage().name(), event.stage().kernels_done(),
                   event.stage().kernels_total()});
    default:
      return;  // the end is told by End()
  }
}

void CallImpl::Emit(CallEvent event) {
  event.at_ms = ElapsedMs();
  {
    absl::MutexLock lock(&mutex_);
    if (events_.size() < kMaxEvents) events_.push_back(event);
  }
  if (on_event_) on_event_(event);
}

void CallImpl::End(absl::Status status, std::shared_ptr<const CompiledGraph> result) {
  CallEvent event;
  event.kind = status.ok() ? CallEvent::Kind::kDone : CallEvent::Kind::kFailed;
  event.text = std::string(status.message());
  Emit(std::move(event));
  known_.clear();
  request_.Clear();
  absl::MutexLock lock(&mutex_);
  status_ = std::move(status);
  result_ = std::move(result);
  done_ = true;
}

bool CallImpl::Wait(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&done_), timeout);
}

bool CallImpl::Done() const {
  absl::MutexLock lock(&mutex_);
  return done_;
}

void CallImpl::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

absl::Status CallImpl::status() const {
  absl::MutexLock lock(&mutex_);
  return done_ ? status_ : absl::UnavailableError("the request is under way");
}

std::shared_ptr<const CompiledGraph> CallImpl::result() const {
  absl::MutexLock lock(&mutex_);
  return result_;
}

std::vector<CallEvent> CallImpl::events() const {
  absl::MutexLock lock(&mutex_);
  return events_;
}

bool CallImpl::Cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

bool CallImpl::Pause(absl::Duration delay) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&cancelled_), delay);
  return !cancelled_;
}

double CallImpl::ElapsedMs() const { return absl::ToDoubleMilliseconds(absl::Now() - start_); }

}  // namespace stepone::client
