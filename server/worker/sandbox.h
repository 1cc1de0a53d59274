// Confines a worker before it reads its first request.
#ifndef STEPONE_SERVER_WORKER_SANDBOX_H_
#define STEPONE_SERVER_WORKER_SANDBOX_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stepone::server {

struct SandboxOptions {
  size_t memory_limit_bytes = size_t{4} << 30;  // address space; 0: no limit
  int max_open_files = 256;
  std::string scratch_dir;  // the only folder below which files may be written
};

// Limits resources, gives up the right to gain privileges, denies system calls that a compiler has no use for (network,
// debugging, kernel configuration), and makes all but the scratch folder read-only. Returns what took effect, out of
// "rlimits", "no-new-privileges", "seccomp", "landlock": what this build or kernel lacks is left out.
// An error means that something that is there failed; do not serve then.
// REQUIRES: called once, before a thread is started.
absl::StatusOr<std::vector<std::string>> EnterSandbox(const SandboxOptions& options);

// Lets the process use at most `seconds` of processor time from now on (SIGXCPU kills it then).
void LimitCpuSeconds(int64_t seconds);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_WORKER_SANDBOX_H_
