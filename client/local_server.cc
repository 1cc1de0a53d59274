#include "client/local_server.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "proto/str_cat.h"

extern char** environ;

namespace stepone::client {
namespace {

namespace fs = std::filesystem;

constexpr char kSocketName[] = "server.sock";
constexpr char kIdleExit[] = "--idle-exit-seconds=1800";
constexpr size_t kLogTailBytes = 600;
constexpr absl::Duration kPollPeriod = absl::Milliseconds(10);

// Closes on destruction; a lock taken with flock() goes with it.
class ScopedFd {
 public:
  explicit ScopedFd(int fd) : fd_(fd) {}
  ScopedFd(const ScopedFd&) = delete;
  ScopedFd& operator=(const ScopedFd&) = delete;
  ~ScopedFd() { Close(); }
  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

absl::Status Errno(std::string_view what) {
  return absl::InternalError(StrCat("local server: ", what, ": ", std::strerror(errno)));
}

bool IsPrivateFolder(const std::string& path) {
  struct stat info{};
  if (lstat(path.c_str(), &info) != 0) return false;
  return S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
}

absl::Status MakePrivateFolder(const std::string& path) {
  std::error_code error;
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return Errno(StrCat("mkdir ", path));
  if (!IsPrivateFolder(path)) {
    return absl::PermissionDeniedError(StrCat(path, " must be a folder of this user with mode 0700"));
  }
  return absl::OkStatus();
}

bool Accepts(const std::string& socket_path) {
  ScopedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  return fd.get() >= 0 && connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
}

// Folder of the library or program that this code is in.
fs::path OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  return fs::absolute(info.dli_fname, error).parent_path();
}

absl::StatusOr<std::string> FindServer(const ClientConfig& config) {
  if (!config.server_path.empty()) {
    if (access(config.server_path.c_str(), X_OK) == 0) return config.server_path;
    return absl::NotFoundError(StrCat("STEPONE_SERVER: ", config.server_path, " is no executable"));
  }
  const fs::path own = OwnFolder();
  for (const fs::path& path : {own / "bin" / "stepone-server", own / "stepone-server"}) {
    if (access(path.c_str(), X_OK) == 0) return path.string();
  }
  if (std::string path = FindOnPath("stepone-server"); !path.empty()) return path;
  return absl::NotFoundError(
      StrCat("no stepone-server in ", own.string(), "/bin or on PATH; set STEPONE_SERVER or STEPONE_ENDPOINT"));
}

std::string LogTail(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.size() > kLogTailBytes) text.erase(0, text.find('\n', text.size() - kLogTailBytes) + 1);
  return text.empty() ? "(its log is empty)" : text;
}

// Starts the server as nobody's child. The returned descriptor reaches its end when the server has ended.
absl::StatusOr<int> Spawn(const ClientConfig& config, const std::string& home, const std::string& server) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Errno("pipe");
  ScopedFd read_end(ends[0]), write_end(ends[1]);
  // The shell starts the server in the background and ends at once, so that the trainer never has a child to wait for.
  // Descriptor 3, the pipe, is inherited by the server and by nobody else.
  const std::string log = home + "/server.log";
  std::vector<std::string> arguments = {
      "sh",     "-c",   "log=$1; shift; \"$@\" </dev/null >>\"$log\" 2>&1 &", "sh",
      log,      server, StrCat("--listen=unix:", home, "/", kSocketName),     StrCat("--state-dir=", home, "/server"),
      kIdleExit};
  arguments.insert(arguments.end(), config.server_arguments.begin(), config.server_arguments.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 3);
  posix_spawn_file_actions_addclosefrom_np(&actions, 4);  // the server keeps none of the trainer's files open
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t shell = 0;
  const int failed = posix_spawn(&shell, "/bin/sh", &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    errno = failed;
    return Errno("posix_spawn");
  }
  int status = 0;
  while (waitpid(shell, &status, 0) < 0 && errno == EINTR) {
  }
  return dup(read_end.get());
}

// Waits until the socket accepts, the server ends, or time is up.
absl::Status AwaitServer(const std::string& home, int lifeline, absl::Time deadline) {
  const std::string socket_path = StrCat(home, "/", kSocketName), log = home + "/server.log";
  while (!Accepts(socket_path)) {
    if (absl::Now() > deadline) {
      return absl::UnavailableError(
          StrCat("the local server does not answer in time; its log ends with: ", LogTail(log)));
    }
    pollfd waited{lifeline, POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(kPollPeriod))) > 0) {
      return absl::UnavailableError(StrCat("the local server ended at once; its log ends with: ", LogTail(log)));
    }
  }
  return absl::OkStatus();
}

// Waits for the lock that one starter at a time holds.
absl::Status Lock(int fd, const std::string& socket_path, absl::Time deadline) {
  while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Errno("flock");
    if (Accepts(socket_path)) return absl::OkStatus();  // the other starter is done but for letting go
    if (absl::Now() > deadline) return absl::UnavailableError("another process is starting the local server");
    absl::SleepFor(kPollPeriod);
  }
  return absl::OkStatus();
}

}  // namespace

bool IsPrivateSocket(const std::string& endpoint) {
  if (!absl::StartsWith(endpoint, "unix:")) return false;
  std::string path = endpoint.substr(5);
  if (absl::StartsWith(path, "//")) path.erase(0, 2);
  return IsPrivateFolder(fs::path(path).parent_path().string());
}

absl::StatusOr<std::string> EnsureLocalServer(const ClientConfig& config) {
  const std::string home = config.home.empty() ? DefaultHome() : config.home;
  const std::string socket_path = StrCat(home, "/", kSocketName);
  if (socket_path.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::InvalidArgumentError(StrCat("the path of the socket is too long: ", socket_path));
  }
  if (absl::Status status = MakePrivateFolder(home); !status.ok()) return status;
  const std::string endpoint = "unix:" + socket_path;
  if (Accepts(socket_path)) return endpoint;

  const absl::Time deadline = absl::Now() + absl::Milliseconds(config.server_start_timeout_ms);
  ScopedFd lock(open((home + "/server.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (lock.get() < 0) return Errno("open server.lock");
  if (absl::Status status = Lock(lock.get(), socket_path, deadline); !status.ok()) return status;
  if (Accepts(socket_path)) return endpoint;
  const absl::StatusOr<std::string> server = FindServer(config);
  if (!server.ok()) return server.status();
  unlink(socket_path.c_str());  // left behind by a server that was killed
  const absl::StatusOr<int> lifeline = Spawn(config, home, *server);
  if (!lifeline.ok()) return lifeline.status();
  const ScopedFd held(*lifeline);
  if (absl::Status status = AwaitServer(home, held.get(), deadline); !status.ok()) return status;
  return endpoint;
}

}  // namespace stepone::client
