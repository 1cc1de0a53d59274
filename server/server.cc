#include "server/server.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "cache/store_factory.h"
#include "grpcpp/ext/proto_server_reflection_plugin.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "prometheus/exposer.h"
#include "proto/signing.h"
#include "server/authenticator.h"
#include "server/compile_broker.h"
#include "server/compile_service.h"
#include "server/file_lock.h"
#include "server/version.h"
#include "server/worker_pool.h"
#include "spdlog/spdlog.h"

namespace stepone::server {
namespace {

namespace fs = std::filesystem;

constexpr char kServiceName[] = "stepone.v1.CompileService";
// Calls that are still open when everything else has ended get so long to take their last message.
constexpr absl::Duration kLastWrites = absl::Seconds(2);
// A disk that stays full is worth a line from time to time, not one for each write.
constexpr absl::Duration kStoreWarnings = absl::Minutes(1);

bool IsUnix(const std::string& address) { return absl::StartsWith(address, "unix:"); }

absl::Status MakePrivateFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot create ", path, ": ", error.message()));
  fs::permissions(path, fs::perms::owner_all, error);
  if (error) return absl::PermissionDeniedError(absl::StrCat("cannot make ", path, " private: ", error.message()));
  return absl::OkStatus();
}

std::shared_ptr<grpc::ServerCredentials> TcpCredentials(const ServerConfig& config) {
  if (config.tls_cert.empty()) return grpc::InsecureServerCredentials();
  // Files are looked at again every few seconds: new certificates need no restart.
  auto provider = std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      config.tls_key, config.tls_cert, config.tls_client_ca, /*refresh_interval_sec=*/5);
  grpc::experimental::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (!config.tls_client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return grpc::experimental::TlsServerCredentials(options);
}

bool IsLoopback(const std::string& address) {
  return IsUnix(address) || absl::StartsWith(address, "127.") || absl::StartsWith(address, "localhost:") ||
         absl::StartsWith(address, "[::1]:");
}

std::string TierName(const StoreStats& stats) { return stats.name; }

}  // namespace

// In the order of construction; destruction in the reverse order is safe once Stop() has run.
struct Server::Parts {
  explicit Parts(const ServerConfig& c) : config(c), authenticator(c.tenants, c.token_file) {}

  absl::Status Open(std::vector<std::string> environment);
  absl::Status Listen();
  absl::Status LockSocket(const std::string& path);
  void Publish();
  void RefreshMetrics(Metrics& to);
  void WatchQueue() ABSL_LOCKS_EXCLUDED(health_mu);
  void WatchStores();
  Dispatcher::Options DispatcherOptions() const;
  WorkerPool::Options PoolOptions(std::vector<std::string> environment) const;
  CompileBroker::Options BrokerOptions() const;
  std::string Folder(const char* name) const { return config.state_dir + "/" + name; }

  const ServerConfig config;
  std::vector<UniqueFd> locks;
  std::optional<SigningKey> key;
  OpenedStore store;
  Metrics metrics;
  Authenticator authenticator;
  TimerQueue timers;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<ReproducerStore> reproducers;
  std::unique_ptr<Dispatcher> dispatcher;
  std::unique_ptr<CompileBroker> broker;
  std::unique_ptr<WorkerPool> pool;
  std::unique_ptr<CompileService> service;
  std::unique_ptr<grpc::Server> grpc_server;
  std::shared_ptr<prometheus::Collectable> exposed;  // the exposer keeps only a weak pointer
  std::unique_ptr<prometheus::Exposer> exposer;
  std::vector<std::string> addresses;
  bool stopped = false;

  absl::Mutex health_mu;
  bool serving ABSL_GUARDED_BY(health_mu) = true;
  bool draining ABSL_GUARDED_BY(health_mu) = false;
  std::map<std::string, uint64_t> failed_writes;  // by tier, as last told; of the thread that calls Watch()
  absl::Time failed_writes_told = absl::InfinitePast();
};

absl::Status Server::Parts::Open(std::vector<std::string> environment) {
  for (const std::string& folder : {config.state_dir, Folder("scratch"), Folder("log"), Folder("keys")}) {
    if (absl::Status status = MakePrivateFolder(folder); !status.ok()) return status;
  }
  absl::StatusOr<UniqueFd> lock = TakeFileLock(Folder("lock"));
  if (!lock.ok()) return lock.status();
  locks.push_back(*std::move(lock));
  if (absl::Status status = authenticator.Load(); !status.ok()) return status;

  absl::StatusOr<SigningKey> signing_key = SigningKey::LoadOrCreate(Folder("keys/server.pem"));
  if (!signing_key.ok()) return signing_key.status();
  key.emplace(*std::move(signing_key));

  StoreConfig store_config;
  store_config.memory_bytes = config.memory_store_mb << 20;
  store_config.path = Folder("store");
  store_config.disk_bytes = config.disk_store_mb << 20;
  store_config.read_only = config.read_only_store;
  absl::StatusOr<OpenedStore> opened = OpenStore(std::move(store_config));
  if (!opened.ok()) return opened.status();
  store = *std::move(opened);
  spdlog::info("{}", store.description);

  executor = std::make_unique<Executor>(std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 2, 8),
                                        /*max_waiting=*/10'000);
  reproducers = std::make_unique<ReproducerStore>(Folder("crash"), /*max_reproducers=*/50);
  dispatcher = std::make_unique<Dispatcher>(DispatcherOptions(), reproducers.get(), &timers, &metrics);
  CompileBroker::Parts parts;
  parts.dispatcher = dispatcher.get();
  parts.store = store.store.get();
  parts.key = &*key;
  parts.executor = executor.get();
  parts.timers = &timers;
  parts.metrics = &metrics;
  broker = std::make_unique<CompileBroker>(BrokerOptions(), parts);
  pool = std::make_unique<WorkerPool>(PoolOptions(std::move(environment)), dispatcher.get());
  absl::StatusOr<v1::Hello> hello = pool->Start();
  if (!hello.ok()) return hello.status();
  spdlog::info("{} workers with compiler \"{}\", confined by: {}", config.workers, hello->compiler_fingerprint(),
               absl::StrJoin(hello->sandbox(), " "));
  broker->SetWorkers(*hello);
  metrics.OnCollect([this](Metrics& to) { RefreshMetrics(to); });
  return absl::OkStatus();
}

Dispatcher::Options Server::Parts::DispatcherOptions() const {
  Dispatcher::Options options;
  options.queue.max_length = static_cast<size_t>(config.queue_length);
  options.queue.max_tenant_share = config.tenant_share;
  options.job_timeout = absl::Seconds(config.job_timeout_seconds);
  options.workers = config.workers;
  options.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  options.scratch_dir = Folder("scratch");
  return options;
}

WorkerPool::Options Server::Parts::PoolOptions(std::vector<std::string> environment) const {
  constexpr uint64_t kMaxMessageMb = 1024;
  WorkerPool::Options options;
  options.process.executable = config.worker;
  options.process.arguments = {absl::StrCat("--memory-limit-mb=", config.worker_memory_mb),
                               absl::StrCat("--max-message-mb=", kMaxMessageMb),
                               absl::StrCat("--scratch-dir=", Folder("scratch"))};
  options.process.environment = std::move(environment);
  options.process.log_path = Folder("log/worker-");
  options.process.max_message_bytes = kMaxMessageMb << 20;
  options.workers = config.workers;
  options.hello_timeout = absl::Seconds(config.worker_start_seconds);
  options.jobs_per_worker = config.jobs_per_worker;
  options.max_rss_bytes = config.worker_rss_mb << 20;
  return options;
}

CompileBroker::Options Server::Parts::BrokerOptions() const {
  CompileBroker::Options options;
  options.version = kVersion;
  options.limits.max_request_bytes = config.max_request_mb << 20;
  options.inline_object_bytes = config.inline_object_kb << 10;
  options.grace = absl::Seconds(config.grace_seconds);
  options.queue_timeout = absl::Seconds(config.queue_timeout_seconds);
  options.failure_time_to_live = absl::Seconds(config.failure_ttl_seconds);
  options.max_pending_bytes = config.max_pending_mb << 20;
  options.share_kernels = config.share_kernels;
  return options;
}

void Server::Parts::RefreshMetrics(Metrics& to) {
  to.queue_depth.Set(static_cast<double>(dispatcher->queue_length()));
  to.queue_stalled_seconds.Set(absl::ToDoubleSeconds(dispatcher->StalledFor(absl::Now())));
  const WorkerPool::Stats slots = pool->stats();
  for (const auto& [state, count] : {std::pair<const char*, int>("starting", slots.starting),
                                     {"idle", slots.idle},
                                     {"busy", slots.busy},
                                     {"draining", slots.draining},
                                     {"dead", slots.dead}}) {
    to.slots.Add({{"state", state}}).Set(count);
  }
  for (const StoreStats& tier : store.store->Stats()) {
    const std::map<std::string, std::string> label = {{"tier", TierName(tier)}};
    to.store_bytes.Add(label).Set(static_cast<double>(tier.bytes));
    to.store_entries.Add(label).Set(static_cast<double>(tier.entries));
    to.store_failed_writes.Add(label).Set(static_cast<double>(tier.failed_writes));
    to.store_quarantined.Add(label).Set(static_cast<double>(tier.quarantined));
  }
}

void Server::Parts::WatchQueue() {
  const absl::Duration stalled = dispatcher->StalledFor(absl::Now());
  const bool well = config.stall_seconds == 0 || stalled <= absl::Seconds(config.stall_seconds);
  absl::MutexLock lock(&health_mu);
  if (draining || well == serving) return;
  serving = well;
  grpc_server->GetHealthCheckService()->SetServingStatus(well);
  if (well) {
    spdlog::info("compiles find workers again: health says SERVING");
  } else {
    spdlog::error("compiles wait for {} s, and workers that are not busy do not take them: health says NOT_SERVING",
                  absl::ToInt64Seconds(stalled));
  }
}

void Server::Parts::WatchStores() {
  const absl::Time now = absl::Now();
  if (now - failed_writes_told < kStoreWarnings) return;
  for (const StoreStats& tier : store.store->Stats()) {
    uint64_t& told = failed_writes[TierName(tier)];
    // What is too large for the memory is on disk, which is no fault.
    if (TierName(tier) == "memory" || tier.failed_writes == told) continue;
    spdlog::warn("store: {} writes to {} failed, the last one with: {}", tier.failed_writes - told, TierName(tier),
                 tier.last_error);
    told = tier.failed_writes;
    failed_writes_told = now;
  }
}

absl::Status Server::Parts::LockSocket(const std::string& path) {
  // gRPC replaces a socket that is there, so the lock is what keeps a second server from taking a live one's place.
  absl::StatusOr<UniqueFd> lock = TakeFileLock(path + ".lock");
  if (!lock.ok()) return lock.status();
  locks.push_back(*std::move(lock));
  return absl::OkStatus();
}

absl::Status Server::Parts::Listen() {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  service = std::make_unique<CompileService>(broker.get(), &authenticator, &timers, &metrics,
                                             absl::Seconds(static_cast<int64_t>(config.stream_stall_seconds)));
  grpc::ServerBuilder builder;
  std::vector<int> ports(config.listen.size(), 0);
  for (size_t i = 0; i < config.listen.size(); ++i) {
    const std::string& address = config.listen[i];
    if (IsUnix(address)) {
      if (absl::Status status = LockSocket(address.substr(5)); !status.ok()) return status;
      builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    } else {
      if (!IsLoopback(address) && config.tls_cert.empty()) {
        spdlog::warn("{} is reachable from other hosts without TLS: whoever can connect may ask", address);
      }
      builder.AddListeningPort(address, TcpCredentials(config), &ports[i]);
    }
  }
  // Room for the limits' own answer, which names the rule; past twice the size the transport refuses.
  builder.SetMaxReceiveMessageSize(static_cast<int>(std::min<uint64_t>(config.max_request_mb * 2, 2047)) << 20);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  // Two servers on one port would each see half of the requests.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.RegisterService(service.get());
  grpc_server = builder.BuildAndStart();
  if (grpc_server == nullptr) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", absl::StrJoin(config.listen, ", ")));
  }
  for (size_t i = 0; i < config.listen.size(); ++i) {
    const std::string& address = config.listen[i];
    if (IsUnix(address)) {
      chmod(address.substr(5).c_str(), 0600);
      addresses.push_back(address);
    } else {
      addresses.push_back(absl::StrCat(address.substr(0, address.rfind(':')), ":", ports[i]));
    }
  }
  grpc_server->GetHealthCheckService()->SetServingStatus(kServiceName, true);
  if (!config.metrics_listen.empty()) {
    // The library reports a port that is taken by an exception.
    try {
      exposer = std::make_unique<prometheus::Exposer>(config.metrics_listen, /*num_threads=*/1);
    } catch (const std::exception& error) {
      return absl::UnavailableError(
          absl::StrCat("cannot serve metrics on ", config.metrics_listen, ": ", error.what()));
    }
    exposed = std::shared_ptr<prometheus::Collectable>(&metrics, [](prometheus::Collectable*) {});
    exposer->RegisterCollectable(exposed);
  }
  return absl::OkStatus();
}

void Server::Parts::Publish() {
  // For whoever started the server on a port of its choice.
  const std::string path = Folder("endpoints"), draft = path + ".new";
  std::ofstream(draft) << absl::StrJoin(addresses, "\n") << "\n";
  std::error_code error;
  fs::rename(draft, path, error);
  spdlog::info("listening on {}", absl::StrJoin(addresses, ", "));
}

Server::Server(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

Server::~Server() { Stop(); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerConfig& config,
                                                      std::vector<std::string> environment) {
  std::unique_ptr<Server> server(new Server(std::make_unique<Parts>(config)));
  if (absl::Status status = server->parts_->Open(std::move(environment)); !status.ok()) return status;
  if (absl::Status status = server->parts_->Listen(); !status.ok()) return status;
  server->parts_->Publish();
  return server;
}

const std::vector<std::string>& Server::addresses() const { return parts_->addresses; }

absl::Duration Server::IdleFor() const {
  if (parts_->service->calls().open() > 0 || !parts_->broker->quiet()) return absl::ZeroDuration();
  return absl::Now() - parts_->service->calls().last();
}

std::string Server::MetricsText() const { return parts_->metrics.Text(); }

void Server::Watch() {
  parts_->WatchQueue();
  parts_->WatchStores();
}

void Server::Drain(absl::Duration limit) {
  {
    absl::MutexLock lock(&parts_->health_mu);
    parts_->draining = true;
    parts_->grpc_server->GetHealthCheckService()->SetServingStatus(false);
  }
  parts_->broker->Drain();
  const bool quiet = parts_->broker->AwaitQuiet(limit);
  spdlog::info(quiet ? "drained" : "compiles that still run are given up");
  Stop();
}

void Server::Stop() {
  Parts& parts = *parts_;
  if (std::exchange(parts.stopped, true)) return;
  // Whatever still waits or runs fails now, and its clients are told, before the connections close.
  if (parts.broker != nullptr) parts.broker->Drain();
  if (parts.dispatcher != nullptr) parts.dispatcher->Close();
  if (parts.pool != nullptr) parts.pool->Stop();
  if (parts.grpc_server != nullptr) {
    parts.grpc_server->Shutdown(absl::ToChronoTime(absl::Now() + kLastWrites));
    parts.grpc_server->Wait();
  }
  parts.exposer.reset();
  if (parts.executor != nullptr) parts.executor->Stop();
  parts.timers.Stop();
  std::error_code error;
  for (const std::string& address : parts.addresses) {
    if (IsUnix(address)) fs::remove(address.substr(5), error);
  }
  if (!parts.addresses.empty()) fs::remove(parts.Folder("endpoints"), error);
}

}  // namespace stepone::server
