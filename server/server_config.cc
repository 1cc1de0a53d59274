#include "server/server_config.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/version.h"

namespace stepone::server {
namespace {

constexpr char kEnvironmentPrefix[] = "STEPONE_SERVER_";

template <typename T>
CLI::Option* Add(CLI::App& app, const std::string& name, T& field, const std::string& help) {
  return app.add_option("--" + name, field, help)->capture_default_str();
}

CLI::Option* AddSwitch(CLI::App& app, const std::string& name, bool& field, const std::string& help) {
  // With a value, so that the environment and the file can say "false" too.
  return app.add_option("--" + name, field, help)->expected(0, 1)->default_str("false");
}

void AddWorkerOptions(CLI::App& app, ServerConfig& c) {
  app.option_defaults()->group("Workers");
  Add(app, "worker", c.worker, "worker executable; default: stepone-worker beside this program");
  Add(app, "workers", c.workers, "worker processes; 0: one per core")->check(CLI::Range(0, 1024));
  Add(app, "jobs-per-worker", c.jobs_per_worker, "a worker is replaced after so many jobs; 1 isolates each request")
      ->check(CLI::Range(1, 1'000'000));
  Add(app, "worker-memory-mb", c.worker_memory_mb, "address space of a worker; 0: no limit");
  Add(app, "worker-rss-mb", c.worker_rss_mb, "a worker that holds more than this after a job is replaced");
  Add(app, "job-timeout-seconds", c.job_timeout_seconds, "a compile that takes longer is killed")
      ->check(CLI::Range(0.01, 86400.0));
  Add(app, "worker-start-seconds", c.worker_start_seconds, "how long the first worker may take to start")
      ->check(CLI::Range(0.01, 3600.0));
}

void AddRequestOptions(CLI::App& app, ServerConfig& c) {
  app.option_defaults()->group("Requests");
  Add(app, "queue-length", c.queue_length, "compiles that may wait for a worker; more are turned away")
      ->check(CLI::Range(1, 1'000'000));
  Add(app, "tenant-share", c.tenant_share, "part of the queue that one tenant may fill")->check(CLI::Range(0.0, 1.0));
  Add(app, "queue-timeout-seconds", c.queue_timeout_seconds, "a compile that waits longer is given up")
      ->check(CLI::Range(0.01, 86400.0));
  Add(app, "stall-seconds", c.stall_seconds,
      "health says NOT_SERVING when compiles wait so long for workers that are not busy; 0: never")
      ->check(CLI::Range(0.0, 86400.0));
  Add(app, "grace-seconds", c.grace_seconds, "how long a compile goes on after its last client went away")
      ->check(CLI::Range(0.0, 3600.0));
  Add(app, "failure-ttl-seconds", c.failure_ttl_seconds,
      "how long a graph that can't be compiled is remembered; 0: not")
      ->check(CLI::Range(0.0, 86400.0));
  Add(app, "max-request-mb", c.max_request_mb, "largest request")->check(CLI::Range(1, 1900));
  Add(app, "max-pending-mb", c.max_pending_mb, "memory for all requests being worked on")
      ->check(CLI::Range(1, 1'000'000));
  Add(app, "inline-object-kb", c.inline_object_kb, "objects up to this sum travel with the answer; others are fetched")
      ->check(CLI::Range(0, 1'000'000));
  Add(app, "stream-stall-seconds", c.stream_stall_seconds, "a stream whose client reads nothing for so long is ended")
      ->check(CLI::Range(1, 86400));
}

void AddStoreOptions(CLI::App& app, ServerConfig& c) {
  app.option_defaults()->group("State");
  Add(app, "state-dir", c.state_dir, "store, keys, crashes, logs; default: $STEPONE_HOME/server, or in XDG_STATE_HOME");
  Add(app, "memory-store-mb", c.memory_store_mb, "artifacts kept in memory");
  Add(app, "disk-store-mb", c.disk_store_mb, "artifacts kept on disk");
  AddSwitch(app, "read-only-store", c.read_only_store, "serve what is stored and keep nothing new");
  AddSwitch(app, "share-kernels", c.share_kernels, "let tenants share compiled kernels");
}

void AddAccessOptions(CLI::App& app, ServerConfig& c) {
  app.option_defaults()->group("Access");
  Add(app, "listen", c.listen, "addresses: host:port or unix:/path; several separated by commas")->delimiter(',');
  Add(app, "tenants", c.tenants, "tenants that may ask, separated by commas; empty: any")->delimiter(',');
  Add(app, "token-file", c.token_file,
      "lines of \"TOKEN TENANT\"; clients must then send a token. Read again when it changes");
  Add(app, "tls-cert", c.tls_cert, "PEM certificate chain; TLS on all TCP addresses. Read again when it changes");
  Add(app, "tls-key", c.tls_key, "PEM private key of the certificate");
  Add(app, "tls-client-ca", c.tls_client_ca, "PEM; clients must then show a certificate by this authority");
}

void AddOperationOptions(CLI::App& app, ServerConfig& c) {
  app.option_defaults()->group("Operation");
  Add(app, "idle-exit-seconds", c.idle_exit_seconds, "end when nobody asked for so long; 0: never")
      ->check(CLI::Range(0.0, 1e9));
  Add(app, "drain-seconds", c.drain_seconds, "on SIGTERM, how long running compiles may take to end")
      ->check(CLI::Range(0.0, 86400.0));
  Add(app, "log-level", c.log_level, "debug, info, warning or error")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
  Add(app, "log-format", c.log_format, "text or json")->check(CLI::IsMember({"text", "json"}));
  Add(app, "metrics-listen", c.metrics_listen, "host:port for Prometheus; empty: none");
}

std::string VariableOf(const CLI::Option& option) {
  return kEnvironmentPrefix + absl::AsciiStrToUpper(absl::StrReplaceAll(option.get_lnames()[0], {{"-", "_"}}));
}

// The command line with a flag for each option that the environment sets and the command line does not.
std::vector<std::string> WithEnvironment(const CLI::App& app, const std::vector<std::string>& arguments,
                                         const Environment& environment) {
  std::vector<std::string> all = arguments;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help" || option->get_lnames()[0] == "version")
      continue;
    const std::string flag = "--" + option->get_lnames()[0];
    const bool given = std::any_of(arguments.begin(), arguments.end(), [&flag](const std::string& argument) {
      return argument == flag || absl::StartsWith(argument, flag + "=");
    });
    const char* value = environment(VariableOf(*option).c_str());
    if (!given && value != nullptr) all.push_back(flag + "=" + value);
  }
  return all;
}

std::string DefaultStateDir(const Environment& environment) {
  const auto get = [&environment](const char* name) {
    const char* value = environment(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const std::string home = get("STEPONE_HOME"); !home.empty()) return home + "/server";
  if (const std::string state = get("XDG_STATE_HOME"); !state.empty()) return state + "/stepone/server";
  if (const std::string home = get("HOME"); !home.empty()) return home + "/.local/state/stepone/server";
  return "";
}

std::string DefaultWorker() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "stepone-worker" : (self.parent_path() / "stepone-worker").string();
}

absl::Status CheckAddress(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) {
    const std::string path = address.substr(5);
    if (path.empty() || path[0] != '/')
      return absl::InvalidArgumentError(absl::StrCat("--listen: \"", address, "\" needs an absolute path"));
    // sockaddr_un has room for 107 bytes and a NUL.
    if (path.size() > 107)
      return absl::InvalidArgumentError(absl::StrCat("--listen: path is longer than 107 bytes: ", path));
    return absl::OkStatus();
  }
  const size_t colon = address.rfind(':');
  int port = -1;
  if (colon == std::string::npos || colon == 0 || !absl::SimpleAtoi(address.substr(colon + 1), &port) || port < 0 ||
      port > 65535) {
    return absl::InvalidArgumentError(absl::StrCat("--listen: \"", address, "\" is neither host:port nor unix:/path"));
  }
  return absl::OkStatus();
}

absl::Status Complete(ServerConfig& c, const Environment& environment) {
  if (c.state_dir.empty()) c.state_dir = DefaultStateDir(environment);
  if (c.state_dir.empty()) {
    return absl::InvalidArgumentError("--state-dir: there is no default without STEPONE_HOME, XDG_STATE_HOME or HOME");
  }
  if (c.state_dir[0] != '/')
    return absl::InvalidArgumentError(absl::StrCat("--state-dir: \"", c.state_dir, "\" is no absolute path"));
  if (c.worker.empty()) c.worker = DefaultWorker();
  if (c.workers == 0) c.workers = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  if (c.listen.empty()) return absl::InvalidArgumentError("--listen: at least one address is needed");
  for (const std::string& address : c.listen) {
    if (absl::Status status = CheckAddress(address); !status.ok()) return status;
  }
  if (c.tls_cert.empty() != c.tls_key.empty())
    return absl::InvalidArgumentError("--tls-cert and --tls-key go together");
  if (!c.tls_client_ca.empty() && c.tls_cert.empty())
    return absl::InvalidArgumentError("--tls-client-ca needs --tls-cert");
  if (!c.metrics_listen.empty()) {
    if (absl::StartsWith(c.metrics_listen, "unix:"))
      return absl::InvalidArgumentError("--metrics-listen: needs host:port");
    if (absl::Status status = CheckAddress(c.metrics_listen); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// As the file format wants values: strings in quotes, also within a list.
std::string Quote(absl::string_view value) {
  if (absl::ConsumePrefix(&value, "[") && absl::ConsumeSuffix(&value, "]")) {
    std::vector<std::string> elements;
    for (absl::string_view element : absl::StrSplit(value, ',', absl::SkipEmpty())) elements.push_back(Quote(element));
    return absl::StrCat("[", absl::StrJoin(elements, ", "), "]");
  }
  double number;
  const bool bare = absl::SimpleAtod(value, &number) || value == "true" || value == "false";
  return bare ? std::string(value) : absl::StrCat("\"", value, "\"");
}

// The configuration as a file that --config reads.
std::string Print(const ServerConfig& config) {
  ServerConfig shown = config;
  CLI::App app;
  AddAccessOptions(app, shown);
  AddWorkerOptions(app, shown);
  AddRequestOptions(app, shown);
  AddStoreOptions(app, shown);
  AddOperationOptions(app, shown);
  std::string text;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_lnames()[0] == "help") continue;
    std::string value = option->get_default_str();
    if (option->get_lnames()[0] == "read-only-store") value = shown.read_only_store ? "true" : "false";
    if (option->get_lnames()[0] == "share-kernels") value = shown.share_kernels ? "true" : "false";
    value = Quote(value);
    // The library cannot read an empty list; left out, the option has its default, which is empty.
    absl::StrAppend(&text, "# ", option->get_description(), "\n", value == "[]" ? "# " : "", option->get_lnames()[0],
                    " = ", value, "\n");
  }
  return text;
}

}  // namespace

absl::StatusOr<ParsedConfig> ParseServerConfig(const std::vector<std::string>& arguments,
                                               const Environment& environment) {
  ParsedConfig parsed;
  CLI::App app(
      absl::StrCat("Compiles training graphs for clients that call it over gRPC.\n\nEvery option can also be set by "
                   "an environment variable, ",
                   kEnvironmentPrefix, "<NAME> (as in ", kEnvironmentPrefix,
                   "STATE_DIR), or in the file that --config names (\"state-dir = ...\").\nA flag beats the "
                   "environment, which beats the file."),
      "stepone-server");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  AddAccessOptions(app, parsed.config);
  AddWorkerOptions(app, parsed.config);
  AddRequestOptions(app, parsed.config);
  AddStoreOptions(app, parsed.config);
  AddOperationOptions(app, parsed.config);
  app.get_option("--listen")->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  app.get_option("--tenants")->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  app.option_defaults()->group("Help");
  bool print = false;
  app.add_flag("--print-config", print, "print the configuration in effect and end");
  app.set_version_flag("--version", kVersion);
  app.set_config("--config", "", "file with options (TOML); unknown ones are an error")->group("Help");
  app.allow_config_extras(CLI::config_extras_mode::error);

  std::vector<std::string> all = WithEnvironment(app, arguments, environment);
  std::reverse(all.begin(), all.end());  // what the library wants
  // The library reports through exceptions; they end here.
  try {
    app.parse(all);
  } catch (const CLI::CallForHelp&) {
    parsed.exit = true;
    parsed.output = app.help();
    return parsed;
  } catch (const CLI::CallForVersion&) {
    parsed.exit = true;
    parsed.output = absl::StrCat("stepone-server ", kVersion, "\n");
    return parsed;
  } catch (const CLI::Error& error) {
    return absl::InvalidArgumentError(error.what());
  }
  if (absl::Status status = Complete(parsed.config, environment); !status.ok()) return status;
  if (print) {
    parsed.exit = true;
    parsed.output = Print(parsed.config);
  }
  return parsed;
}

}  // namespace stepone::server
