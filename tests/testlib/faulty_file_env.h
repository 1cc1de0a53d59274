// A file system that breaks where a test says so.
#ifndef STEPONE_TESTS_TESTLIB_FAULTY_FILE_ENV_H_
#define STEPONE_TESTS_TESTLIB_FAULTY_FILE_ENV_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cache/file_env.h"

namespace stepone::testing_support {

enum class FileOp { kRead, kSize, kWrite, kRename, kRemove, kSync, kMakeFolder, kList, kFreeSpace, kLock };

// An operation that fails with an errno.
struct Fault {
  FileOp op = FileOp::kWrite;
  int error = 5;                       // EIO
  std::string path_contains = {};      // empty: any path
  int skip = 0;                        // matching operations that pass first
  int times = 1 << 30;                 // then so many fail
  bool after_effect = false;           // do it all the same, then report the error
  std::optional<size_t> torn_at = {};  // kWrite: so many bytes reach the file first
};

// Passes operations on to the real file system unless a fault matches. Thread-safe.
//
// CrashAt plays the death of the process: every change of the file system has the points "not begun" and "done, but
// nobody heard"; a write has "half of the bytes" between them. Points are numbered from 0 in the order in which they
// are reached. From the crash on, every operation fails with kUnavailable and changes nothing.
class FaultyFileEnv final : public FileEnv {
 public:
  explicit FaultyFileEnv(FileEnv& inner = FileEnv::Real()) : inner_(inner) {}

  void Add(Fault fault);
  void Clear();
  void CrashAt(uint64_t point);
  bool crashed() const;
  // Crash points reached so far.
  uint64_t points() const;
  // What GetFreeSpace says from now on; empty: the truth.
  void SetFreeSpace(std::optional<FreeSpace> space);

  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
  absl::StatusOr<std::string> ReadPrefix(const std::string& path, size_t bytes) override;
  absl::StatusOr<uint64_t> FileSize(const std::string& path) override;
  absl::Status WriteNewFile(const std::string& path, std::string_view bytes) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status RemoveTree(const std::string& path) override;
  absl::Status SyncFolder(const std::string& path) override;
  absl::Status MakeFolder(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  absl::StatusOr<FreeSpace> GetFreeSpace(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(const std::string& path) override;

 private:
  // The fault that applies, if any, counted as used; a crash that has happened is a fault of everything.
  std::optional<Fault> Match(FileOp op, const std::string& path);
  // True if the process dies here.
  bool Point();
  template <typename Effect>
  absl::Status Change(FileOp op, const std::string& path, Effect effect);

  FileEnv& inner_;
  mutable absl::Mutex mutex_;
  std::vector<Fault> faults_ ABSL_GUARDED_BY(mutex_);
  std::optional<uint64_t> crash_at_ ABSL_GUARDED_BY(mutex_);
  bool crashed_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t points_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<FreeSpace> space_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stepone::testing_support

#endif  // STEPONE_TESTS_TESTLIB_FAULTY_FILE_ENV_H_
