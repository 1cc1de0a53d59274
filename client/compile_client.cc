#include "client/compile_client.h"

#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/time/clock.h"
#include "client/compile_call.h"
#include "client/connection.h"
#include "proto/digest.h"
#include "proto/host_target.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

constexpr char kClientVersion[] = "stepone-client/0.1.0";
constexpr absl::Duration kLookupTimeout = absl::Seconds(30);
constexpr absl::Duration kFarewell = absl::Seconds(1);
constexpr uint32_t kBundleFormatVersion = 1;

// The bundle of an answer whose signature was good, if it answers this very request.
absl::StatusOr<v1::Bundle> CheckBundle(const v1::FindBundleResponse& response, const v1::TraceRequest& request) {
  v1::Bundle bundle;
  if (!bundle.ParseFromString(response.bundle().bundle())) return absl::DataLossError("a bundle does not parse");
  if (bundle.format_version() != kBundleFormatVersion) {
    return absl::FailedPreconditionError(
        StrCat("bundle has format ", bundle.format_version(), ", this client reads ", kBundleFormatVersion));
  }
  if (bundle.trace_digest() != Sha256(request.trace()).Raw() || bundle.tenant() != request.context().tenant()) {
    return absl::DataLossError("a bundle answers another request");
  }
  if (bundle.graphs_size() != response.artifacts_size() || bundle.graphs().empty()) {
    return absl::DataLossError("a bundle came without its artifacts");
  }
  return bundle;
}

// What the artifact of one role must look like, by the convention that calls it.
ExpectedArtifact ExpectedOf(const v1::Convention& convention, v1::Role role) {
  if (role != v1::ROLE_BACKWARD) {
    return {role, convention.inputs_size(), static_cast<int>(convention.forward_outputs())};
  }
  return {role, static_cast<int>(convention.saved_outputs()) + convention.tangents_size(), convention.inputs_size()};
}

}  // namespace

// What the request threads and the client have in common. Thread-safe.
class CompileClient::Shared {
 public:
  explicit Shared(ClientConfig config) : connection_(std::make_shared<Connection>(std::move(config))) {}

  Connection& connection() { return *connection_; }

  // Fills in who asks and for what hardware.
  template <typename Request>
  absl::Status Complete(Request& request) {
    const ClientConfig& config = connection_->config();
    v1::ClientContext& context = *request.mutable_context();
    if (context.tenant().empty()) context.set_tenant(config.tenant);
    if (context.job().empty()) context.set_job(config.job);
    context.set_rank(config.rank);
    context.set_client_version(kClientVersion);
    if (request.has_target()) return absl::OkStatus();
    *request.mutable_target() = HostTarget();
    if (config.isa.empty()) return absl::OkStatus();
    absl::StatusOr<v1::Target> lowered = LowerTarget(HostTarget(), config.isa);
    if (!lowered.ok()) return lowered.status();
    *request.mutable_target() = *std::move(lowered);
    return absl::OkStatus();
  }

  // The host that an artifact has to fit: what was asked for, which a pretended host may have lowered.
  std::shared_ptr<CallImpl> NewCall(v1::CompileRequest request, EventCallback on_event) {
    v1::Target host = request.target();
    return std::make_shared<CallImpl>(connection_, std::move(request), std::move(host), std::move(on_event));
  }

  // Runs `work` on a thread of its own, with the session and the context of one call that Shutdown() cuts short.
  void InBackground(std::shared_ptr<Shared> self,
                    std::function<void(const absl::StatusOr<Connection::Session>&, grpc::ClientContext&)> work) {
    auto context = std::make_shared<grpc::ClientContext>();
    {
      absl::MutexLock lock(&mutex_);
      background_.insert(context);
    }
    std::thread([context, self = std::move(self), work = std::move(work)] {
      work(self->connection_->Open(absl::Now() + kLookupTimeout), *context);
      absl::MutexLock lock(&self->mutex_);
      self->background_.erase(context);
    }).detach();
  }

  void Start(std::shared_ptr<CallImpl> call, std::shared_ptr<Shared> self) {
    {
      absl::MutexLock lock(&mutex_);
      running_.insert(call);
    }
    std::thread([call = std::move(call), self = std::move(self)]() mutable {
      call->Run();
      self->Leave(call);
    }).detach();
  }

  // True in a process that was forked from the one that made this: threads and connection stayed behind there.
  bool forked() const { return getpid() != owner_; }

  // Cancels what is under way and waits until no thread is left. REQUIRES: not forked().
  void Shutdown() {
    absl::MutexLock lock(&mutex_);
    for (const std::shared_ptr<CallImpl>& call : running_) call->Cancel();
    const auto no_call = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_.empty(); };
    mutex_.Await(absl::Condition(&no_call));
    // What a short training has to tell the service at its end is worth a moment.
    const auto no_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return background_.empty(); };
    mutex_.AwaitWithTimeout(absl::Condition(&no_work), kFarewell);
    for (const std::shared_ptr<grpc::ClientContext>& context : background_) context->TryCancel();
    mutex_.Await(absl::Condition(&no_work));
  }

 private:
  void Leave(const std::shared_ptr<CallImpl>& call) {
    absl::MutexLock lock(&mutex_);
    running_.erase(call);
  }

  const std::shared_ptr<Connection> connection_;
  const pid_t owner_ = getpid();
  absl::Mutex mutex_;  // before CallImpl's
  absl::flat_hash_set<std::shared_ptr<CallImpl>> running_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<std::shared_ptr<grpc::ClientContext>> background_ ABSL_GUARDED_BY(mutex_);
};

CompileClient::CompileClient(ClientConfig config) : shared_(std::make_shared<Shared>(std::move(config))) {}

CompileClient::~CompileClient() {
  if (shared_->forked()) {
    new std::shared_ptr<Shared>(shared_);  // leaked on purpose: gRPC can't take down what another process runs
    return;
  }
  shared_->Shutdown();
}

std::shared_ptr<CompileCall> CompileClient::Submit(v1::CompileRequest request, EventCallback on_event) {
  const absl::Status completed = shared_->Complete(request);
  std::shared_ptr<CallImpl> call = shared_->NewCall(std::move(request), std::move(on_event));
  if (completed.ok()) {
    shared_->Start(call, shared_);
  } else {
    call->Fail(completed);
  }
  return call;
}

absl::StatusOr<std::shared_ptr<CompileCall>> CompileClient::Find(v1::CompileRequest request) {
  if (absl::Status status = shared_->Complete(request); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + kLookupTimeout;
  absl::StatusOr<Connection::Session> session = shared_->connection().Open(deadline);
  if (!session.ok()) return session.status();
  std::shared_ptr<CallImpl> call = shared_->NewCall(request, nullptr);
  grpc::ClientContext context;
  shared_->connection().Prepare(context, deadline);
  v1::FindResponse response;
  const grpc::Status status = session->stub->Find(&context, request, &response);
  if (!status.ok()) return ToStatus(status, context);
  if (!response.found()) return std::shared_ptr<CompileCall>();
  call->FinishWith(*session, std::move(*response.mutable_artifact()), v1::SOURCE_UNSPECIFIED,
                   ExpectedOf(request.graph()));
  return std::shared_ptr<CompileCall>(std::move(call));
}

// One call with one answer.
template <typename Request, typename Response>
absl::StatusOr<Response> CompileClient::Ask(grpc::Status (v1::CompileService::Stub::*rpc)(grpc::ClientContext*,
                                                                                          const Request&, Response*),
                                            const Request& request, absl::Duration timeout) {
  absl::StatusOr<Connection::Session> session = shared_->connection().Open(absl::Now() + kLookupTimeout);
  if (!session.ok()) return session.status();
  grpc::ClientContext context;
  shared_->connection().Prepare(context, absl::Now() + timeout);
  Response response;
  const grpc::Status status = (session->stub.get()->*rpc)(&context, request, &response);
  if (!status.ok()) return ToStatus(status, context);
  return response;
}

absl::StatusOr<v1::ExplainResponse> CompileClient::Explain(v1::CompileRequest request) {
  if (absl::Status status = shared_->Complete(request); !status.ok()) return status;
  return Ask(&v1::CompileService::Stub::Explain, request, kLookupTimeout);
}

absl::StatusOr<v1::GetCapabilitiesResponse> CompileClient::GetCapabilities() {
  return Ask(&v1::CompileService::Stub::GetCapabilities, v1::GetCapabilitiesRequest(), kLookupTimeout);
}

absl::StatusOr<std::optional<FoundBundle>> CompileClient::FindBundle(v1::TraceRequest request, absl::Duration timeout) {
  if (absl::Status status = shared_->Complete(request); !status.ok()) return status;
  const std::vector<std::shared_ptr<MappedObject>> known = KnownObjects();
  for (const auto& object : known) request.add_known_objects(object->digest().Raw());
  absl::StatusOr<v1::FindBundleResponse> response = Ask(&v1::CompileService::Stub::FindBundle, request, timeout);
  if (!response.ok()) return response.status();
  if (!response->found()) {
    ++GlobalClientCounters().bundle_misses;
    return std::nullopt;
  }
  absl::StatusOr<FoundBundle> found = Load(request, *std::move(response));
  if (!found.ok()) {
    // The service may have gone away in the middle; that says nothing about what it sent.
    if (!absl::IsUnavailable(found.status()) && !absl::IsDeadlineExceeded(found.status())) {
      ++GlobalClientCounters().verify_failures;
    }
    return found.status();
  }
  ++GlobalClientCounters().bundle_hits;
  return *std::move(found);
}

absl::StatusOr<FoundBundle> CompileClient::Load(const v1::TraceRequest& request, v1::FindBundleResponse response) {
  const absl::Time deadline = absl::Now() + kLookupTimeout;
  absl::StatusOr<Connection::Session> session = shared_->connection().Open(deadline);
  if (!session.ok()) return session.status();
  absl::Status trusted = session->keys->Verify(response.bundle());
  if (absl::IsPermissionDenied(trusted)) {
    // The user's own server may have got a new key since this process met it.
    absl::StatusOr<std::shared_ptr<const TrustedKeys>> keys = shared_->connection().RefreshKeys(deadline);
    if (keys.ok()) trusted = (*keys)->Verify(response.bundle());
  }
  if (!trusted.ok()) return trusted;
  absl::StatusOr<v1::Bundle> bundle = CheckBundle(response, request);
  if (!bundle.ok()) return bundle.status();
  FoundBundle found{*std::move(bundle), {}};
  for (int i = 0; i < response.artifacts_size(); ++i) {
    const v1::BundleGraph& graph = found.bundle.graphs(i);
    if (response.artifacts(i).signed_manifest().graph_key() != graph.graph_key()) {
      return absl::DataLossError("a bundle came with another artifact than it names");
    }
    v1::CompileRequest shell;
    *shell.mutable_context() = request.context();
    *shell.mutable_target() = request.target();
    std::shared_ptr<CallImpl> call = shared_->NewCall(std::move(shell), nullptr);
    call->FinishWith(*session, std::move(*response.mutable_artifacts(i)), response.source(),
                     ExpectedOf(found.bundle.convention(), graph.role()));
    if (!call->status().ok()) return call->status();
    found.graphs.push_back(call->result());
  }
  return found;
}

void CompileClient::PutBundle(v1::PutBundleRequest request) {
  if (!shared_->Complete(*request.mutable_trace()).ok()) {
    ++GlobalClientCounters().bundle_put_failures;
    return;
  }
  shared_->InBackground(shared_, [shared = shared_, request = std::move(request)](
                                     const absl::StatusOr<Connection::Session>& session, grpc::ClientContext& context) {
    AtomicClientCounters& counters = GlobalClientCounters();
    v1::PutBundleResponse response;
    if (session.ok()) shared->connection().Prepare(context, absl::Now() + kLookupTimeout);
    const bool put = session.ok() && session->stub->PutBundle(&context, request, &response).ok();
    ++(put ? counters.bundles_put : counters.bundle_put_failures);
  });
}

absl::StatusOr<v1::ExplainResponse> CompileClient::ExplainBundle(v1::TraceRequest request) {
  if (absl::Status status = shared_->Complete(request); !status.ok()) return status;
  return Ask(&v1::CompileService::Stub::ExplainBundle, request, kLookupTimeout);
}

void CompileClient::Connect() {
  shared_->InBackground(shared_, [](const absl::StatusOr<Connection::Session>&, grpc::ClientContext&) {});
}

std::string CompileClient::endpoint() const { return shared_->connection().endpoint(); }

bool CompileClient::circuit_open() const { return shared_->connection().circuit_open(); }

CompileClient::Counters CompileClient::ProcessCounters() {
  const AtomicClientCounters& counters = GlobalClientCounters();
  return {counters.requests.load(),           counters.retries.load(),       counters.verify_failures.load(),
          counters.bundle_hits.load(),        counters.bundle_misses.load(), counters.bundles_put.load(),
          counters.bundle_put_failures.load()};
}

void CompileClient::ResetProcessCounters() {
  AtomicClientCounters& counters = GlobalClientCounters();
  counters.requests = counters.retries = counters.verify_failures = 0;
  counters.bundle_hits = counters.bundle_misses = counters.bundles_put = counters.bundle_put_failures = 0;
}

}  // namespace stepone::client
