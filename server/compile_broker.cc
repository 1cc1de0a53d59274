#include "server/compile_broker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/status.h"
#include "proto/str_cat.h"
#include "server/artifact_builder.h"
#include "spdlog/spdlog.h"

namespace stepone::server {
namespace {

absl::Status RetryLater(absl::Status status, absl::Duration after) {
  v1::ErrorDetail detail;
  detail.set_retry_after_ms(absl::ToInt64Milliseconds(after));
  return WithDetail(std::move(status), std::move(detail));
}

absl::Status Overload() {
  return RetryLater(absl::ResourceExhaustedError("too many requests are being worked on"), absl::Seconds(1));
}

const char* RefusalLabel(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
      return "invalid";
    case absl::StatusCode::kUnimplemented:
      return "unimplemented";
    case absl::StatusCode::kResourceExhausted:
      return "queue_full";
    case absl::StatusCode::kUnavailable:
      return "draining";
    case absl::StatusCode::kDeadlineExceeded:
      return "deadline";
    case absl::StatusCode::kFailedPrecondition:
      return "precondition";
    default:
      return "other";
  }
}

}  // namespace

CompileBroker::CompileBroker(Options options, Parts parts)
    : options_(std::move(options)),
      parts_(parts),
      desk_({options_.inline_object_bytes, options_.max_pin_bytes}, parts.store, parts.key, parts.metrics),
      bundles_(options_.limits, &desk_, parts.store, parts.key, parts.metrics),
      kernels_(*parts.store),
      failures_(options_.failure_time_to_live, options_.max_remembered_failures) {}

void CompileBroker::SetWorkers(const v1::Hello& hello) {
  fingerprint_ = hello.compiler_fingerprint();
  offer_.targets.assign(hello.targets().begin(), hello.targets().end());
  offer_.backends.assign(hello.backends().begin(), hello.backends().end());
  bundles_.SetWorkers(fingerprint_, offer_);
}

v1::GetCapabilitiesResponse CompileBroker::Capabilities() const {
  v1::GetCapabilitiesResponse response;
  response.set_server_version(options_.version);
  response.set_compiler_fingerprint(fingerprint_);
  for (const v1::BackendCapability& backend : offer_.backends) *response.add_backends() = backend;
  for (const std::string& mode : KnownModes()) response.add_modes(mode);
  for (const v1::Target& offered : offer_.targets) {
    v1::Target& target = *response.add_targets();
    target.set_device_type(offered.device_type());
    target.set_isa(offered.isa());
  }
  response.set_public_key(parts_.key->public_key());
  response.set_max_request_bytes(options_.limits.max_request_bytes);
  response.set_max_graph_nodes(static_cast<uint64_t>(options_.limits.max_nodes));
  response.set_inline_object_bytes(options_.inline_object_bytes);
  return response;
}

absl::StatusOr<KeyMaterial> CompileBroker::Check(const v1::CompileRequest& request) const {
  if (absl::Status status = CheckRequest(request, options_.limits, offer_); !status.ok()) return status;
  return GraphKey(request.graph(), request.target(), request.code_options(), fingerprint_, request.context().tenant());
}

template <typename Request>
std::shared_ptr<const Request> CompileBroker::Charge(Request request) {
  const size_t bytes = request.ByteSizeLong();
  if (pending_bytes_.fetch_add(bytes) + bytes > options_.max_pending_bytes) {
    pending_bytes_ -= bytes;
    return nullptr;
  }
  return std::shared_ptr<const Request>(new Request(std::move(request)), [this, bytes](const Request* charged) {
    delete charged;
    pending_bytes_ -= bytes;
  });
}

std::string CompileBroker::Compile(v1::CompileRequest request, std::shared_ptr<EventSink> sink) {
  OperationPtr operation;
  bool draining;
  {
    absl::MutexLock lock(&mu_);
    std::vector<std::string> known(request.known_objects().begin(), request.known_objects().end());
    operation = table_.Open(request.context(), std::move(known), std::move(sink));
    draining = draining_;
  }
  if (draining) {
    Refuse(operation, RetryLater(absl::UnavailableError("server is going down"), absl::Seconds(1)));
    return operation->id;
  }
  const int64_t deadline_ms = request.run_options().deadline_ms();
  std::shared_ptr<const v1::CompileRequest> charged = Charge(std::move(request));
  if (charged == nullptr || !parts_.executor->Run([this, operation, charged] { Admit(operation, charged); })) {
    Refuse(operation, Overload());
  } else if (deadline_ms > 0) {
    parts_.timers->RunAt(absl::Now() + absl::Milliseconds(deadline_ms), [this, id = operation->id] { Expire(id); });
  }
  return operation->id;
}

void CompileBroker::Refuse(const OperationPtr& operation, const absl::Status& status) {
  parts_.metrics->refusals.Add(RefusalLabel(status.code()));
  {
    absl::MutexLock lock(&mu_);
    outbox_.PushEnd(operation->sink, status);
    table_.Close(operation);
  }
  outbox_.Drain();
}

void CompileBroker::Admit(const OperationPtr& operation, const std::shared_ptr<const v1::CompileRequest>& request) {
  absl::StatusOr<KeyMaterial> material = Check(*request);
  if (!material.ok()) return Refuse(operation, material.status());
  const v1::RunOptions& run = request->run_options();
  std::optional<absl::Status> failure;
  FlightPtr led;
  {
    absl::MutexLock lock(&mu_);
    // It was cancelled, or its deadline passed, before its turn came.
    if (table_.Find(operation->id) == nullptr) return;
    if (!run.recompile() && !run.do_not_cache()) failure = failures_.Recall(material->key, absl::Now());
    if (!failure.has_value()) led = JoinOrLead(operation, request, *std::move(material));
  }
  if (failure.has_value()) {
    parts_.metrics->refusals.Add("remembered_failure");
    return Refuse(operation, *failure);
  }
  outbox_.Drain();
  if (led != nullptr) Fly(led);
}

FlightPtr CompileBroker::JoinOrLead(const OperationPtr& operation,
                                    const std::shared_ptr<const v1::CompileRequest>& request, KeyMaterial material) {
  const v1::RunOptions& run = request->run_options();
  FlightPtr flight = run.do_not_cache() ? nullptr : table_.FindFlight(material.key);
  // A flight that may end with what is stored is no answer to who wants a new compile.
  if (flight != nullptr && run.recompile() && !flight->overwrite) flight = nullptr;
  FlightPtr led;
  if (flight != nullptr) {
    table_.Join(flight, operation);
    if (flight->submitted) parts_.metrics->joins.Increment();
    if (run.blocking_step() && !flight->blocking && flight->task.has_value()) parts_.dispatcher->Raise(*flight->task);
  } else {
    led = flight = table_.Lead(operation, std::move(material), /*listed=*/!run.do_not_cache());
    flight->request = request;
    flight->look_up = !run.recompile() && !run.do_not_cache();
    flight->store = !run.do_not_cache();
    flight->overwrite = run.recompile();
  }
  flight->blocking |= run.blocking_step();
  Welcome(*operation);
  return led;
}

void CompileBroker::Welcome(const Operation& operation) {
  const Flight& flight = *operation.flight;
  v1::CompileEvent event;
  event.set_operation(operation.id);
  event.mutable_accepted()->set_graph_key(flight.material.key.Raw());
  event.mutable_accepted()->set_joined(operation.joined);
  outbox_.Push(operation.sink, std::move(event));
  if (flight.progress.event_case() == v1::CompileEvent::EVENT_NOT_SET) return;
  v1::CompileEvent progress = flight.progress;
  progress.set_operation(operation.id);
  outbox_.Push(operation.sink, std::move(progress));
}

void CompileBroker::Fly(const FlightPtr& flight) {
  if (flight->look_up) {
    Landing landing;
    landing.artifact = desk_.LookUp(flight->material, flight->request->context().job(), landing.source);
    if (landing.artifact != nullptr) return LandFlight(flight, std::move(landing), /*remember=*/false);
    // What is there could not be used, so it must not win against what replaces it.
    if (desk_.cache().Contains(flight->material.key)) flight->overwrite = true;
    parts_.metrics->misses.Increment();
  }
  SubmitFlight(flight);
}

void CompileBroker::SubmitFlight(const FlightPtr& flight) {
  CompileTask task;
  {
    absl::MutexLock lock(&mu_);
    flight->submitted = true;
    for (size_t i = 1; i < flight->waiters.size(); ++i) parts_.metrics->joins.Increment();
    task = MakeTask(flight);
  }
  absl::StatusOr<uint64_t> id = parts_.dispatcher->Submit(std::move(task));
  if (!id.ok()) {
    parts_.metrics->refusals.Add(RefusalLabel(id.status().code()));
    Landing landing;
    landing.status = id.status();
    return LandFlight(flight, std::move(landing), /*remember=*/false);
  }
  bool unwanted = false, raise = false;
  {
    absl::MutexLock lock(&mu_);
    flight->task = *id;
    unwanted = flight->waiters.empty() && !flight->landed;
    raise = flight->blocking;  // somebody may have joined since the task was made
  }
  if (unwanted) {
    parts_.timers->RunAt(absl::Now() + options_.grace, [this, flight] { Abandon(flight); });
  } else if (raise) {
    parts_.dispatcher->Raise(*id);
  }
}

CompileTask CompileBroker::MakeTask(const FlightPtr& flight) {
  CompileTask task;
  task.key = flight->material.key;
  task.request = flight->request;
  task.blocking = flight->blocking;
  task.queue_deadline = absl::Now() + options_.queue_timeout;
  task.on_queued = [this, flight](int position, absl::Duration eta) { OnQueued(flight, position, eta); };
  task.on_stage = [this, flight](const v1::Stage& stage) { OnStage(flight, stage); };
  task.on_lookup = [this, flight](const v1::KernelLookup& lookup) { return OnLookup(flight, lookup); };
  task.on_done = [this, flight](CompileOutcome outcome) { OnDone(flight, std::move(outcome)); };
  return task;
}

void CompileBroker::Progress(const FlightPtr& flight) {
  for (const OperationPtr& operation : flight->waiters) {
    v1::CompileEvent event = flight->progress;
    event.set_operation(operation->id);
    outbox_.Push(operation->sink, std::move(event));
  }
}

void CompileBroker::OnQueued(const FlightPtr& flight, int position, absl::Duration eta) {
  {
    absl::MutexLock lock(&mu_);
    if (flight->landed || flight->started) return;
    flight->progress.mutable_queued()->set_position(position);
    flight->progress.mutable_queued()->set_eta_ms(absl::ToInt64Milliseconds(eta));
    Progress(flight);
  }
  outbox_.Drain();
}

void CompileBroker::OnStage(const FlightPtr& flight, const v1::Stage& stage) {
  {
    absl::MutexLock lock(&mu_);
    flight->started = true;
    *flight->progress.mutable_stage() = stage;
    Progress(flight);
  }
  outbox_.Drain();
}

std::string CompileBroker::Scope(const FlightPtr& flight) const {
  return options_.share_kernels ? std::string() : flight->request->context().tenant();
}

v1::KernelAnswer CompileBroker::OnLookup(const FlightPtr& flight, const v1::KernelLookup& lookup) {
  v1::KernelAnswer answer;
  const std::string scope = Scope(flight);
  for (const std::string& key : lookup.kernel_keys()) {
    // A request that must not be stored, or that is to be compiled anew, gets no old kernels either.
    absl::StatusOr<Blob> object = absl::NotFoundError("");
    if (flight->store && !flight->request->run_options().recompile()) object = kernels_.Get(key, scope);
    if (object.ok()) parts_.metrics->kernels_reused.Increment();
    answer.add_objects(object.ok() ? **object : std::string());
  }
  return answer;
}

void CompileBroker::OnDone(const FlightPtr& flight, CompileOutcome outcome) {
  Landing landing;
  landing.status = outcome.status;
  landing.queued = outcome.queued;
  landing.compiling = outcome.compiling;
  if (landing.status.ok()) {
    absl::StatusOr<v1::Artifact> artifact = BuildArtifact(outcome.result, flight->material.key, fingerprint_,
                                                          flight->request->context().tenant(), *parts_.key);
    if (artifact.ok()) {
      landing.source = v1::SOURCE_COMPILED;
      if (flight->store) *artifact = desk_.cache().PutOrGet(flight->material, *std::move(artifact), flight->overwrite);
      landing.artifact = std::make_shared<const v1::Artifact>(*std::move(artifact));
    } else {
      landing.status = artifact.status();
      spdlog::error("compile of {}: {}", flight->material.key.Hex(), landing.status.ToString());
    }
  }
  const bool keep = landing.status.ok() && flight->store;
  LandFlight(flight, std::move(landing), outcome.deterministic);
  if (keep) KeepKernels(flight, std::move(outcome.result));
}

void CompileBroker::KeepKernels(const FlightPtr& flight, v1::JobResult result) {
  parts_.metrics->kernels_compiled.Increment(result.new_kernels_size());
  if (result.new_kernels().empty()) return;
  auto shared = std::make_shared<v1::JobResult>(std::move(result));
  // Nobody waits for it. If there is too much to do already, the next compile of these kernels does it again.
  parts_.executor->Run([this, shared, scope = Scope(flight)] {
    for (v1::CompiledKernel& kernel : *shared->mutable_new_kernels()) {
      absl::Status kept = kernels_.Put(kernel.kernel_key(), scope, MakeBlob(std::move(*kernel.mutable_object())));
      if (!kept.ok() && !absl::IsAlreadyExists(kept)) spdlog::debug("kernel is not kept: {}", kept.ToString());
    }
  });
}

void CompileBroker::LandFlight(const FlightPtr& flight, Landing landing, bool remember) {
  auto shared = std::make_shared<const Landing>(std::move(landing));
  std::vector<std::pair<OperationPtr, std::shared_ptr<EventSink>>> waiters;
  {
    absl::MutexLock lock(&mu_);
    if (remember && flight->store) failures_.Remember(flight->material.key, shared->status, absl::Now());
    if (shared->status.ok() && flight->store) failures_.Forget(flight->material.key);
    for (OperationPtr& operation : table_.Land(flight)) {
      if (shared->status.ok() && flight->store && !operation->job.empty()) {
        desk_.Pin(operation->job, flight->material.key, shared->artifact);
      }
      waiters.emplace_back(operation, std::exchange(operation->sink, nullptr));
      if (flight->submitted) {
        // A stream may break during the very last event; until the grace time is over it can be had again.
        operation->landing = shared;
        parts_.timers->RunAt(absl::Now() + options_.grace, [this, operation] {
          absl::MutexLock lock(&mu_);
          table_.Close(operation);
        });
      } else {
        table_.Close(operation);
      }
    }
  }
  for (auto& [operation, sink] : waiters) Deliver(*operation, std::move(sink), *shared);
  outbox_.Drain();
}

void CompileBroker::Deliver(const Operation& operation, std::shared_ptr<EventSink> sink, const Landing& landing) {
  if (sink == nullptr) return;
  v1::CompileEvent event;
  event.set_operation(operation.id);
  if (landing.status.ok()) {
    v1::Done& done = *event.mutable_done();
    *done.mutable_artifact() = desk_.Answer(*landing.artifact, operation.known_objects);
    const bool joined = landing.source == v1::SOURCE_COMPILED && operation.joined;
    done.set_source(joined ? v1::SOURCE_JOINED : landing.source);
    done.set_queue_ms(absl::ToInt64Milliseconds(landing.queued));
    done.set_compile_ms(absl::ToInt64Milliseconds(landing.compiling));
  } else {
    *event.mutable_failed() = ToErrorDetail(landing.status);
  }
  outbox_.Push(sink, std::move(event));
  outbox_.PushEnd(std::move(sink), landing.status);
}

void CompileBroker::Detach(const std::string& id, const EventSink* sink) {
  absl::MutexLock lock(&mu_);
  OperationPtr operation = table_.Find(id);
  if (operation == nullptr || operation->sink.get() != sink) return;
  operation->sink.reset();
  parts_.timers->RunAt(absl::Now() + options_.grace, [this, operation, attachment = operation->attachment] {
    FlightPtr lonely;
    {
      absl::MutexLock lock(&mu_);
      if (operation->sink != nullptr || operation->attachment != attachment || operation->landing != nullptr) return;
      lonely = table_.Leave(operation);
      table_.Close(operation);
    }
    if (lonely != nullptr) Abandon(lonely);
  });
}

void CompileBroker::Attach(const v1::AttachRequest& request, std::shared_ptr<EventSink> sink) {
  {
    absl::MutexLock lock(&mu_);
    OperationPtr operation = table_.Find(request.operation(), request.context().tenant());
    if (operation == nullptr) {
      outbox_.PushEnd(std::move(sink), absl::NotFoundError("no such operation; call Compile again"));
    } else if (operation->landing != nullptr) {
      operation->known_objects.assign(request.known_objects().begin(), request.known_objects().end());
      // Reads and perhaps writes objects, so not here.
      const bool taken = parts_.executor->Run([this, operation, sink] {
        Deliver(*operation, sink, *operation->landing);
        outbox_.Drain();
      });
      if (!taken) outbox_.PushEnd(std::move(sink), Overload());
    } else {
      operation->known_objects.assign(request.known_objects().begin(), request.known_objects().end());
      outbox_.PushEnd(std::exchange(operation->sink, std::move(sink)),
                      absl::AbortedError("another stream was attached"));
      ++operation->attachment;
      if (operation->flight != nullptr) Welcome(*operation);
    }
  }
  outbox_.Drain();
}

bool CompileBroker::Cancel(const v1::CancelRequest& request) {
  {
    absl::MutexLock lock(&mu_);
    OperationPtr operation = table_.Find(request.operation(), request.context().tenant());
    if (operation == nullptr || operation->landing != nullptr) return false;
    FlightPtr lonely = table_.Leave(operation);
    outbox_.PushEnd(operation->sink, absl::CancelledError("cancelled by the client"));
    table_.Close(operation);
    if (lonely != nullptr) {
      parts_.timers->RunAt(absl::Now() + options_.grace, [this, lonely] { Abandon(lonely); });
    }
  }
  outbox_.Drain();
  return true;
}

void CompileBroker::Expire(const std::string& id) {
  std::optional<uint64_t> give_up;
  {
    absl::MutexLock lock(&mu_);
    OperationPtr operation = table_.Find(id);
    if (operation == nullptr || operation->landing != nullptr) return;
    const absl::Status status =
        absl::DeadlineExceededError("deadline of the request passed; the result may be there later");
    FlightPtr lonely = table_.Leave(operation);
    v1::CompileEvent event;
    event.set_operation(id);
    *event.mutable_failed() = ToErrorDetail(status);
    outbox_.Push(operation->sink, std::move(event));
    outbox_.PushEnd(operation->sink, status);
    table_.Close(operation);
    // A compile that runs is finished and kept; one that has not begun is not worth a worker.
    if (lonely != nullptr && !lonely->started) {
      give_up = lonely->task;
      table_.Unlist(lonely);
    }
  }
  parts_.metrics->refusals.Add("deadline");
  if (give_up.has_value()) parts_.dispatcher->Cancel(*give_up);
  outbox_.Drain();
}

void CompileBroker::Abandon(const FlightPtr& flight) {
  std::optional<uint64_t> task;
  {
    absl::MutexLock lock(&mu_);
    if (flight->landed || !flight->waiters.empty()) return;
    // From here on the same request starts a flight of its own.
    table_.Unlist(flight);
    task = flight->task;
  }
  if (task.has_value()) parts_.dispatcher->Cancel(*task);
}

void CompileBroker::Find(v1::CompileRequest request, Callback<v1::FindResponse> done) {
  std::shared_ptr<const v1::CompileRequest> charged = Charge(std::move(request));
  const bool taken = charged != nullptr && parts_.executor->Run([this, charged, done] {
    absl::StatusOr<KeyMaterial> material = Check(*charged);
    if (!material.ok()) {
      parts_.metrics->refusals.Add(RefusalLabel(material.status().code()));
      return done(material.status());
    }
    v1::FindResponse response;
    response.set_graph_key(material->key.Raw());
    v1::Source source;
    if (auto artifact = desk_.LookUp(*material, charged->context().job(), source); artifact != nullptr) {
      response.set_found(true);
      std::vector<std::string> known(charged->known_objects().begin(), charged->known_objects().end());
      *response.mutable_artifact() = desk_.Answer(*artifact, known);
    }
    done(std::move(response));
  });
  if (!taken) done(Overload());
}

void CompileBroker::Explain(v1::CompileRequest request, Callback<v1::ExplainResponse> done) {
  std::shared_ptr<const v1::CompileRequest> charged = Charge(std::move(request));
  const bool taken = charged != nullptr && parts_.executor->Run([this, charged, done] {
    absl::StatusOr<KeyMaterial> material = Check(*charged);
    if (!material.ok()) return done(material.status());
    v1::ExplainResponse response;
    response.set_graph_key(material->key.Raw());
    response.set_found(desk_.cache().Contains(material->key));
    if (response.found()) {
      response.set_nearest_key(material->key.Raw());
    } else if (absl::StatusOr<NearestKey> nearest = desk_.cache().Nearest(*material); nearest.ok()) {
      response.set_nearest_key(nearest->key.Raw());
      for (v1::FieldDifference& difference : nearest->differences) *response.add_differences() = std::move(difference);
    }
    done(std::move(response));
  });
  if (!taken) done(Overload());
}

template <typename Request, typename Response>
void CompileBroker::AskBundles(Request request, absl::StatusOr<Response> (BundleDesk::*ask)(const Request&),
                               Callback<Response> done) {
  std::shared_ptr<const Request> charged = Charge(std::move(request));
  const bool taken = charged != nullptr && parts_.executor->Run([this, charged, ask, done] {
    absl::StatusOr<Response> answer = (bundles_.*ask)(*charged);
    if (!answer.ok()) parts_.metrics->refusals.Add(RefusalLabel(answer.status().code()));
    done(std::move(answer));
  });
  if (!taken) done(Overload());
}

void CompileBroker::FindBundle(v1::TraceRequest request, Callback<v1::FindBundleResponse> done) {
  AskBundles(std::move(request), &BundleDesk::Find, std::move(done));
}

void CompileBroker::PutBundle(v1::PutBundleRequest request, Callback<v1::PutBundleResponse> done) {
  AskBundles(std::move(request), &BundleDesk::Put, std::move(done));
}

void CompileBroker::ExplainBundle(v1::TraceRequest request, Callback<v1::ExplainResponse> done) {
  AskBundles(std::move(request), &BundleDesk::Explain, std::move(done));
}

void CompileBroker::Fetch(const v1::FetchRequest& request, Callback<Blob> done) {
  const std::optional<Digest> digest = Digest::FromRaw(request.digest());
  if (!digest.has_value()) return done(InvalidNode("", "digest", "a digest has 32 bytes"));
  const bool taken = parts_.executor->Run([this, digest = *digest, offset = request.offset(), done] {
    absl::StatusOr<Entry> entry = parts_.store->Get({Kind::kObject, digest});
    if (!entry.ok()) return done(entry.status());
    if (offset > entry->bytes->size()) return done(absl::OutOfRangeError("offset is past the end of the object"));
    done(std::move(entry->bytes));
  });
  if (!taken) done(Overload());
}

void CompileBroker::Drain() {
  absl::MutexLock lock(&mu_);
  draining_ = true;
}

bool CompileBroker::AwaitQuiet(absl::Duration timeout) {
  absl::MutexLock lock(&mu_);
  const auto is_quiet = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return table_.flights() == 0; };
  return mu_.AwaitWithTimeout(absl::Condition(&is_quiet), timeout);
}

bool CompileBroker::quiet() const {
  absl::MutexLock lock(&mu_);
  return table_.flights() == 0;
}

}  // namespace stepone::server
