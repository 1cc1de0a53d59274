// One worker process as its parent sees it.
#ifndef STEPONE_SERVER_WORKER_PROCESS_H_
#define STEPONE_SERVER_WORKER_PROCESS_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/worker_channel.h"

namespace stepone::server {

// How a worker ended.
struct WorkerExit {
  enum class Kind {
    kExited,       // by itself
    kCrashed,      // SIGSEGV, SIGABRT, ...
    kKilled,       // SIGKILL or SIGTERM by somebody else: an operator, or the kernel when memory ran out
    kOutOfMemory,  // an allocation failed under the worker's own limit
    kOutOfTime,    // it used up its processor time
  };
  Kind kind = Kind::kExited;
  std::string text;  // "killed by signal 11 (Segmentation fault)"
};

// A running worker: process group, connection, and a file with what it wrote to stderr. Not thread-safe, except pid().
// The worker dies with the thread that spawned it (it asks the kernel for that itself) and when this object goes away.
class WorkerProcess {
 public:
  struct Options {
    std::string executable;
    std::vector<std::string> arguments;    // besides those that Spawn() adds
    std::vector<std::string> environment;  // "NAME=value", the worker's whole environment
    std::string log_path;                  // stderr goes there; emptied at each start
    size_t max_message_bytes = 512u << 20;
  };

  // Starts the process, passing `--channel-fd=3 --parent-pid=N` and the arguments. kNotFound, kPermissionDenied and the
  // like when it can't be started; that it speaks is only known once its Hello has been read.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Spawn(const Options& options);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;

  WorkerChannel& channel() { return channel_; }
  pid_t pid() const { return pid_; }
  // False once the process has ended.
  bool Alive();
  // Resident memory, 0 when it can't be told.
  size_t RssBytes() const;
  // Kills the whole process group, waits for the worker and says how it had ended (how it was killed, if it still ran).
  WorkerExit Kill();
  // The last part of what it wrote to stderr.
  std::string LogTail(size_t max_bytes = 16 * 1024) const;

 private:
  WorkerProcess(pid_t pid, UniqueFd fd, const Options& options);

  const pid_t pid_;
  WorkerChannel channel_;
  const std::string log_path_;
  bool reaped_ = false;
  int wait_status_ = 0;
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_WORKER_PROCESS_H_
