#include "server/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stepone::server {
namespace {

int Reap(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// As the C library wants them: null-terminated, valid as long as `texts`.
std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

WorkerExit Describe(int status) {
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    WorkerExit::Kind kind = WorkerExit::Kind::kCrashed;
    if (signal == SIGKILL || signal == SIGTERM) kind = WorkerExit::Kind::kKilled;
    if (signal == SIGXCPU) kind = WorkerExit::Kind::kOutOfTime;
    return {kind, absl::StrCat("killed by signal ", signal, " (", strsignal(signal), ")")};
  }
  const int code = WEXITSTATUS(status);
  if (code == kOutOfMemoryExitCode) return {WorkerExit::Kind::kOutOfMemory, "out of memory"};
  return {WorkerExit::Kind::kExited, absl::StrCat("exited with status ", code)};
}

// posix_spawn's two parameter blocks, destroyed together.
class SpawnParameters {
 public:
  SpawnParameters(int channel_fd, const std::string& log_path) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_adddup2(&actions_, channel_fd, kWorkerChannelFd);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, log_path.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    // Standard output belongs to the front process.
    posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);

    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnParameters() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  const posix_spawn_file_actions_t* actions() const { return &actions_; }
  const posix_spawnattr_t* attributes() const { return &attributes_; }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

}  // namespace

WorkerProcess::WorkerProcess(pid_t pid, UniqueFd fd, const Options& options)
    : pid_(pid), channel_(std::move(fd), options.max_message_bytes), log_path_(options.log_path) {}

WorkerProcess::~WorkerProcess() { Kill(); }

absl::StatusOr<std::unique_ptr<WorkerProcess>> WorkerProcess::Spawn(const Options& options) {
  auto pair = WorkerChannel::CreatePair();
  if (!pair.ok()) return pair.status();
  // dup2 onto itself would leave close-on-exec set, so the worker's end must not have the target's number.
  if (pair->second.get() == kWorkerChannelFd) pair->second = UniqueFd(fcntl(kWorkerChannelFd, F_DUPFD_CLOEXEC, 10));

  std::vector<std::string> arguments = {options.executable, absl::StrCat("--channel-fd=", kWorkerChannelFd),
                                        absl::StrCat("--parent-pid=", getpid())};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<std::string> environment = options.environment;
  const std::vector<char*> argv = Pointers(arguments), envp = Pointers(environment);

  SpawnParameters parameters(pair->second.get(), options.log_path);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, options.executable.c_str(), parameters.actions(), parameters.attributes(),
                                argv.data(), envp.data());
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot start worker ", options.executable));
  return std::unique_ptr<WorkerProcess>(new WorkerProcess(pid, std::move(pair->first), options));
}

bool WorkerProcess::Alive() {
  if (reaped_) return false;
  // Left unreaped until its group is killed: until then nobody else can get the group's number.
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) return true;
  Kill();
  return false;
}

size_t WorkerProcess::RssBytes() const {
  std::ifstream statm(absl::StrCat("/proc/", pid_, "/statm"));
  size_t total_pages = 0, resident_pages = 0;
  if (!(statm >> total_pages >> resident_pages)) return 0;
  return resident_pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

WorkerExit WorkerProcess::Kill() {
  if (!reaped_) {
    // A worker that dies closes its connection a moment before it can be waited for; SIGKILL does not change how a
    // process that is already dying is reported.
    kill(-pid_, SIGKILL);
    wait_status_ = Reap(pid_);
    reaped_ = true;
  }
  return Describe(wait_status_);
}

std::string WorkerProcess::LogTail(size_t max_bytes) const {
  std::ifstream in(log_path_, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const size_t size = static_cast<size_t>(in.tellg());
  const size_t length = std::min(size, max_bytes);
  std::string tail(length, '\0');
  in.seekg(static_cast<std::streamoff>(size - length));
  in.read(tail.data(), static_cast<std::streamsize>(length));
  return tail;
}

}  // namespace stepone::server
