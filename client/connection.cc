#include "client/connection.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "client/local_server.h"
#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

constexpr absl::Duration kFirstPause = absl::Seconds(5);
constexpr absl::Duration kLongestPause = absl::Minutes(5);
constexpr int kMaxMessageBytes = 512 << 20;
constexpr char kErrorKey[] = "stepone-error-bin";

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(StrCat(path, " can't be read"));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

bool IsLocal(const std::string& endpoint) {
  for (const char* prefix : {"unix:", "127.", "localhost:", "[::1]:", "ipv4:127.", "ipv6:[::1]:"}) {
    if (absl::StartsWith(endpoint, prefix)) return true;
  }
  return false;
}

grpc::ChannelArguments Arguments(const std::string& endpoint) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // A proxy of the environment is meant for the way out of the host; it can't even name a unix socket.
  if (IsLocal(endpoint)) arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Channels with equal arguments share one connection; each Connection wants its own.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(const ClientConfig& config) {
  if (config.tls_ca_file.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  const std::pair<const std::string*, grpc::string*> files[] = {{&config.tls_ca_file, &options.pem_root_certs},
                                                                {&config.tls_cert_file, &options.pem_cert_chain},
                                                                {&config.tls_key_file, &options.pem_private_key}};
  for (const auto& [path, text] : files) {
    if (path->empty()) continue;
    absl::StatusOr<std::string> read = ReadFile(*path);
    if (!read.ok()) return read.status();
    *text = *std::move(read);
  }
  return grpc::SslCredentials(options);
}

std::chrono::system_clock::time_point ToChrono(absl::Time time) { return absl::ToChronoTime(time); }

}  // namespace

absl::Status ToStatus(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return absl::OkStatus();
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kErrorKey);
  v1::ErrorDetail detail;
  if (found != metadata.end() && detail.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    return FromErrorDetail(detail);
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

Connection::Connection(ClientConfig config) : config_(std::move(config)), breaker_(kFirstPause, kLongestPause) {}

std::string Connection::endpoint() const {
  absl::MutexLock lock(&mutex_);
  return endpoint_.empty() ? config_.endpoint : endpoint_;
}

bool Connection::circuit_open() const { return breaker_.open(absl::Now()); }

void Connection::Prepare(grpc::ClientContext& context, absl::Time deadline) const {
  context.set_deadline(ToChrono(deadline));
  absl::MutexLock lock(&mutex_);
  if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
}

std::optional<Connection::Session> Connection::ReadySession() {
  absl::MutexLock lock(&mutex_);
  if (channel_ == nullptr || session_.keys == nullptr) return std::nullopt;
  if (channel_->GetState(false) != GRPC_CHANNEL_READY) return std::nullopt;
  return session_;
}

absl::StatusOr<Connection::Session> Connection::Open(absl::Time deadline) {
  if (std::optional<Session> ready = ReadySession()) return *std::move(ready);
  // Those who waited here while another thread tried share its answer: the session, or the open circuit.
  absl::MutexLock connecting(&connect_mutex_);
  if (std::optional<Session> ready = ReadySession()) return *std::move(ready);
  if (absl::Status status = breaker_.Allow(absl::Now()); !status.ok()) return status;
  absl::StatusOr<Session> session = Connect(deadline);
  if (session.ok()) {
    breaker_.Success();
  } else {
    breaker_.Failure(absl::Now(), session.status());
  }
  return session;
}

absl::StatusOr<Connection::Session> Connection::Connect(absl::Time deadline) {
  std::string endpoint = config_.endpoint;
  if (endpoint.empty()) {
    absl::StatusOr<std::string> local = EnsureLocalServer(config_);
    if (!local.ok()) return local.status();
    endpoint = *std::move(local);
  }
  std::shared_ptr<grpc::Channel> channel;
  Session session;
  {
    absl::MutexLock lock(&mutex_);
    if (absl::Status status = MakeChannel(endpoint); !status.ok()) return status;
    channel = channel_;
    session = session_;
  }
  const absl::Time limit = std::min(deadline, absl::Now() + absl::Milliseconds(config_.connect_timeout_ms));
  if (!channel->WaitForConnected(ToChrono(limit))) {
    return absl::UnavailableError(StrCat("no connection to ", endpoint, " within ", config_.connect_timeout_ms, " ms"));
  }
  if (session.keys != nullptr) return session;
  absl::StatusOr<std::shared_ptr<const TrustedKeys>> keys = LearnKeys(*session.stub, endpoint, deadline);
  if (!keys.ok()) return keys.status();
  absl::MutexLock lock(&mutex_);
  session_.keys = *std::move(keys);
  return session_;
}

absl::Status Connection::MakeChannel(const std::string& endpoint) {
  if (channel_ != nullptr && endpoint_ == endpoint) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials =
      absl::StartsWith(endpoint, "unix:") ? grpc::InsecureChannelCredentials() : Credentials(config_);
  if (!credentials.ok()) return credentials.status();
  if (!config_.token_file.empty()) {
    absl::StatusOr<std::string> token = ReadFile(config_.token_file);
    if (!token.ok()) return token.status();
    token_ = std::string(absl::StripAsciiWhitespace(*token));
  }
  endpoint_ = endpoint;
  channel_ = grpc::CreateCustomChannel(endpoint, *credentials, Arguments(endpoint));
  session_ = Session{v1::CompileService::NewStub(channel_), nullptr};
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const TrustedKeys>> Connection::LearnKeys(v1::CompileService::Stub& stub,
                                                                         const std::string& endpoint,
                                                                         absl::Time deadline) {
  auto keys = std::make_shared<TrustedKeys>();
  for (const std::string& key : config_.trusted_keys) {
    if (absl::Status status = keys->Add(key); !status.ok()) return status;
  }
  if (!config_.trusted_keys_file.empty()) {
    absl::StatusOr<std::vector<std::string>> read = ReadTrustedKeys(config_.trusted_keys_file);
    if (!read.ok()) return read.status();
    for (const std::string& key : *read) {
      if (absl::Status status = keys->Add(key); !status.ok()) return status;
    }
  }
  if (IsPrivateSocket(endpoint)) {
    grpc::ClientContext context;
    Prepare(context, std::min(deadline, absl::Now() + absl::Milliseconds(config_.connect_timeout_ms)));
    v1::GetCapabilitiesResponse response;
    const grpc::Status status = stub.GetCapabilities(&context, v1::GetCapabilitiesRequest(), &response);
    if (!status.ok()) return ToStatus(status, context);
    if (absl::Status added = keys->Add(response.public_key()); !added.ok()) return added;
  }
  if (keys->empty()) {
    return absl::FailedPreconditionError(StrCat("the keys of ", endpoint,
                                                " are not known: set STEPONE_TRUSTED_KEYS to "
                                                "a file with its public key (hexadecimal or base64, one a line)"));
  }
  return std::shared_ptr<const TrustedKeys>(std::move(keys));
}

absl::StatusOr<std::shared_ptr<const TrustedKeys>> Connection::RefreshKeys(absl::Time deadline) {
  Session session;
  std::string endpoint;
  {
    absl::MutexLock lock(&mutex_);
    session = session_;
    endpoint = endpoint_;
  }
  if (session.stub == nullptr) return absl::FailedPreconditionError("there is no connection");
  absl::StatusOr<std::shared_ptr<const TrustedKeys>> keys = LearnKeys(*session.stub, endpoint, deadline);
  if (!keys.ok()) return keys.status();
  absl::MutexLock lock(&mutex_);
  session_.keys = *keys;
  return *std::move(keys);
}

}  // namespace stepone::client
