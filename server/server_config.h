// Everything that can be set about a server: one list, one precedence.
#ifndef STEPONE_SERVER_SERVER_CONFIG_H_
#define STEPONE_SERVER_SERVER_CONFIG_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stepone::server {

// Plain data; see OptionTable() in server_config.cc for what each field means.
struct ServerConfig {
  std::vector<std::string> listen = {"127.0.0.1:7461"};  // host:port, or unix:/path
  std::string state_dir;
  std::string worker;  // path of stepone-worker
  int workers = 0;     // 0: one per core
  int jobs_per_worker = 200;
  uint64_t worker_memory_mb = 4096;  // address space of one worker
  uint64_t worker_rss_mb = 1024;     // recycled above this
  double job_timeout_seconds = 120;
  double worker_start_seconds = 30;

  int queue_length = 256;
  double tenant_share = 1.0;
  double queue_timeout_seconds = 600;
  double stall_seconds = 60;  // 0: never
  double grace_seconds = 10;
  double failure_ttl_seconds = 600;
  uint64_t max_request_mb = 256;
  uint64_t max_pending_mb = 1024;
  uint64_t inline_object_kb = 1024;
  uint64_t stream_stall_seconds = 60;

  uint64_t memory_store_mb = 32;
  uint64_t disk_store_mb = 10240;
  bool read_only_store = false;
  bool share_kernels = false;

  std::vector<std::string> tenants;  // empty: any
  std::string token_file;
  std::string tls_cert, tls_key, tls_client_ca;

  double idle_exit_seconds = 0;  // 0: never
  double drain_seconds = 30;
  std::string log_level = "info";
  std::string log_format = "text";
  std::string metrics_listen;  // host:port; empty: none
};

// What ParseServerConfig() makes of a command line.
struct ParsedConfig {
  ServerConfig config;
  bool exit = false;  // --help, --version or --print-config: print `output` and end with status 0
  std::string output;
};

// Name of an environment variable -> its value, or null. The program passes getenv.
using Environment = std::function<const char*(const char*)>;

// Flag beats environment (STEPONE_SERVER_<NAME>) beats file (--config, or STEPONE_SERVER_CONFIG) beats default. Checks
// values and fills in what depends on the host (state_dir, workers, worker).
// kInvalidArgument names the option: unknown in the file or on the command line, or a value out of range.
absl::StatusOr<ParsedConfig> ParseServerConfig(const std::vector<std::string>& arguments,
                                               const Environment& environment);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_SERVER_CONFIG_H_
