#include "cache/file_env.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "proto/str_cat.h"

namespace stepone {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case EISDIR:
    case ELOOP:
    case ENXIO:  // a socket
      return absl::StatusCode::kDataLoss;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  // Reports what an earlier write could not: network file systems say so only now.
  bool Close() { return close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

class HeldLock final : public FileLock {
 public:
  explicit HeldLock(Descriptor file) : file_(std::move(file)) {}

 private:
  Descriptor file_;
};

absl::Status MakeOneFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) {
    return chmod(path.c_str(), 0700) == 0 ? absl::OkStatus() : FileErrno(errno, "set the mode of", path);
  }
  const int error = errno;
  struct stat info;
  if (error == EEXIST && stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return absl::OkStatus();
  return FileErrno(error, "make the folder", path);
}

class RealFileEnv final : public FileEnv {
 public:
  absl::StatusOr<std::string> ReadFile(const std::string& path) override { return ReadPrefix(path, SIZE_MAX); }

  absl::StatusOr<std::string> ReadPrefix(const std::string& path, size_t bytes) override {
    Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
    if (file.get() < 0) return FileErrno(errno, "open", path);
    struct stat info;
    if (fstat(file.get(), &info) != 0) return FileErrno(errno, "examine", path);
    if (!S_ISREG(info.st_mode)) return absl::DataLossError(StrCat("not a regular file: ", path));
    std::string content(std::min(bytes, static_cast<size_t>(info.st_size)), '\0');
    size_t have = 0;
    while (have < content.size()) {
      const ssize_t size = read(file.get(), content.data() + have, content.size() - have);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) return FileErrno(errno, "read", path);
      if (size == 0) break;
      have += static_cast<size_t>(size);
    }
    content.resize(have);
    return content;
  }

  absl::StatusOr<uint64_t> FileSize(const std::string& path) override {
    struct stat info;
    if (lstat(path.c_str(), &info) != 0) return FileErrno(errno, "examine", path);
    if (!S_ISREG(info.st_mode)) return absl::DataLossError(StrCat("not a regular file: ", path));
    return static_cast<uint64_t>(info.st_size);
  }

  absl::Status WriteNewFile(const std::string& path, std::string_view bytes) override {
    Descriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (file.get() < 0) return FileErrno(errno, "create", path);
    if (fchmod(file.get(), 0600) != 0) return FileErrno(errno, "set the mode of", path);
    while (!bytes.empty()) {
      const ssize_t written = write(file.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return FileErrno(errno, "write", path);
      bytes.remove_prefix(static_cast<size_t>(written));
    }
    if (fdatasync(file.get()) != 0) return FileErrno(errno, "sync", path);
    if (!file.Close()) return FileErrno(errno, "close", path);
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) return FileErrno(errno, StrCat("rename ", from, " to"), to);
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path) override {
    if (unlink(path.c_str()) != 0) return FileErrno(errno, "remove", path);
    return absl::OkStatus();
  }

  absl::Status RemoveTree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return FileErrno(error.value(), "remove", path);
    return absl::OkStatus();
  }

  absl::Status SyncFolder(const std::string& path) override {
    Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.get() < 0) return FileErrno(errno, "open", path);
    // Some file systems can't sync a folder and say EINVAL; they order names by themselves.
    if (fsync(folder.get()) != 0 && errno != EINVAL) return FileErrno(errno, "sync", path);
    return absl::OkStatus();
  }

  absl::Status MakeFolder(const std::string& path) override {
    absl::Status status = MakeOneFolder(path);
    const size_t slash = path.find_last_of('/');
    if (!absl::IsNotFound(status) || slash == std::string::npos || slash == 0) return status;
    if (absl::Status parent = MakeFolder(path.substr(0, slash)); !parent.ok()) return parent;
    return MakeOneFolder(path);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    DIR* folder = opendir(path.c_str());
    if (folder == nullptr) return FileErrno(errno, "list", path);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(folder)) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      errno = 0;
    }
    const int error = errno;
    closedir(folder);
    if (error != 0) return FileErrno(error, "list", path);
    return names;
  }

  absl::StatusOr<FreeSpace> GetFreeSpace(const std::string& path) override {
    struct statvfs info;
    if (statvfs(path.c_str(), &info) != 0) return FileErrno(errno, "measure free space of", path);
    FreeSpace space;
    space.free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
    space.total_bytes = uint64_t{info.f_blocks} * info.f_frsize;
    space.free_inodes = info.f_files == 0 ? UINT64_MAX : info.f_favail;
    return space;
  }

  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (file.get() < 0) return FileErrno(errno, "open", path);
    fchmod(file.get(), 0600);
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return absl::FailedPreconditionError(StrCat("another process holds ", path));
      return FileErrno(errno, "lock", path);
    }
    return std::make_unique<HeldLock>(std::move(file));
  }
};

}  // namespace

absl::Status FileErrno(int error, std::string_view what, const std::string& path) {
  return absl::Status(CodeOf(error), StrCat("cannot ", what, " ", path, ": ",
                                            std::error_code(error, std::generic_category()).message()));
}

FileEnv& FileEnv::Real() {
  static FileEnv* const env = new RealFileEnv();
  return *env;
}

}  // namespace stepone
