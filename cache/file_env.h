// The seam between the disk store and the file system, so that tests can break it at any step.
#ifndef STEPONE_CACHE_FILE_ENV_H_
#define STEPONE_CACHE_FILE_ENV_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stepone {

// Releases what it holds when it is destroyed.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

struct FreeSpace {
  uint64_t free_bytes = 0;  // for this user
  uint64_t total_bytes = 0;
  uint64_t free_inodes = 0;  // UINT64_MAX where the file system does not count them
};

// File operations of the disk store. Thread-safe; may block on the device. New files have mode 0600 and new folders
// 0700 whatever the umask is. The real one keeps no state.
//
// Errors: kNotFound, kAlreadyExists, kResourceExhausted (no space, quota or inodes), kPermissionDenied (also a
// read-only file system), kDataLoss (something is there, but no regular file), kUnavailable (everything else: EIO,
// ESTALE, EBUSY).
class FileEnv {
 public:
  virtual ~FileEnv() = default;

  // Never blocks on a FIFO and follows no link in the last component.
  virtual absl::StatusOr<std::string> ReadFile(const std::string& path) = 0;
  // At most the first `bytes` bytes.
  virtual absl::StatusOr<std::string> ReadPrefix(const std::string& path, size_t bytes) = 0;
  virtual absl::StatusOr<uint64_t> FileSize(const std::string& path) = 0;
  // Creates a file that must not exist, and returns when its bytes are on the device. After an error, part of it may be
  // there.
  virtual absl::Status WriteNewFile(const std::string& path, std::string_view bytes) = 0;
  // Atomic; replaces a file at `to`.
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  // With everything below it; OK when there is nothing.
  virtual absl::Status RemoveTree(const std::string& path) = 0;
  // Makes renames and removals in a folder survive a crash of the machine.
  virtual absl::Status SyncFolder(const std::string& path) = 0;
  // With its parents; OK if it exists.
  virtual absl::Status MakeFolder(const std::string& path) = 0;
  // Names in a folder, in no order.
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  virtual absl::StatusOr<FreeSpace> GetFreeSpace(const std::string& path) = 0;
  // Creates the file if need be. kFailedPrecondition when somebody else holds the lock.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) = 0;

  // The operating system's. Lives for ever.
  static FileEnv& Real();
};

// An errno as FileEnv's errors, with "cannot <what> <path>" as text.
absl::Status FileErrno(int error, std::string_view what, const std::string& path);

}  // namespace stepone

#endif  // STEPONE_CACHE_FILE_ENV_H_
