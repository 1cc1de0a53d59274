#include "client/compile_client.h"

#include <unistd.h>

#include <atomic>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/time/clock.h"
#include "client/compile_call.h"
#include "client/connection.h"
#include "proto/host_target.h"

namespace stepone::client {
namespace {

constexpr char kClientVersion[] = "stepone-client/0.1.0";
constexpr absl::Duration kLookupTimeout = absl::Seconds(30);

}  // namespace

// What the request threads and the client have in common. Thread-safe.
class CompileClient::Shared {
 public:
  explicit Shared(ClientConfig config) : connection_(std::make_shared<Connection>(std::move(config))) {}

  Connection& connection() { return *connection_; }

  // Fills in who asks and for what hardware.
  absl::Status Complete(v1::CompileRequest& request) {
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
    mutex_.Await(
        absl::Condition(+[](absl::flat_hash_set<std::shared_ptr<CallImpl>>* set) { return set->empty(); }, &running_));
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
  call->FinishWith(*session, std::move(*response.mutable_artifact()));
  return std::shared_ptr<CompileCall>(std::move(call));
}

absl::StatusOr<v1::ExplainResponse> CompileClient::Explain(v1::CompileRequest request) {
  if (absl::Status status = shared_->Complete(request); !status.ok()) return status;
  const absl::Time deadline = absl::Now() + kLookupTimeout;
  absl::StatusOr<Connection::Session> session = shared_->connection().Open(deadline);
  if (!session.ok()) return session.status();
  grpc::ClientContext context;
  shared_->connection().Prepare(context, deadline);
  v1::ExplainResponse response;
  const grpc::Status status = session->stub->Explain(&context, request, &response);
  if (!status.ok()) return ToStatus(status, context);
  return response;
}

absl::StatusOr<v1::GetCapabilitiesResponse> CompileClient::GetCapabilities() {
  const absl::Time deadline = absl::Now() + kLookupTimeout;
  absl::StatusOr<Connection::Session> session = shared_->connection().Open(deadline);
  if (!session.ok()) return session.status();
  grpc::ClientContext context;
  shared_->connection().Prepare(context, deadline);
  v1::GetCapabilitiesResponse response;
  const grpc::Status status = session->stub->GetCapabilities(&context, v1::GetCapabilitiesRequest(), &response);
  if (!status.ok()) return ToStatus(status, context);
  return response;
}

std::string CompileClient::endpoint() const { return shared_->connection().endpoint(); }

bool CompileClient::circuit_open() const { return shared_->connection().circuit_open(); }

CompileClient::Counters CompileClient::ProcessCounters() {
  const AtomicClientCounters& counters = GlobalClientCounters();
  return {counters.requests.load(), counters.retries.load(), counters.verify_failures.load()};
}

void CompileClient::ResetProcessCounters() {
  AtomicClientCounters& counters = GlobalClientCounters();
  counters.requests = counters.retries = counters.verify_failures = 0;
}

}  // namespace stepone::client
