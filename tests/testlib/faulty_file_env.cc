#include "tests/testlib/faulty_file_env.h"

#include <cerrno>
#include <utility>

namespace stepone::testing_support {
namespace {

absl::Status Dead() { return absl::UnavailableError("the process is dead"); }

absl::Status AsStatus(const Fault& fault, const std::string& path) {
  return fault.error == 0 ? Dead() : FileErrno(fault.error, "(fault) use", path);
}

}  // namespace

void FaultyFileEnv::Add(Fault fault) {
  absl::MutexLock lock(&mutex_);
  faults_.push_back(std::move(fault));
}

void FaultyFileEnv::Clear() {
  absl::MutexLock lock(&mutex_);
  faults_.clear();
}

void FaultyFileEnv::CrashAt(uint64_t point) {
  absl::MutexLock lock(&mutex_);
  crash_at_ = point;
}

bool FaultyFileEnv::crashed() const {
  absl::MutexLock lock(&mutex_);
  return crashed_;
}

uint64_t FaultyFileEnv::points() const {
  absl::MutexLock lock(&mutex_);
  return points_;
}

void FaultyFileEnv::SetFreeSpace(std::optional<FreeSpace> space) {
  absl::MutexLock lock(&mutex_);
  space_ = space;
}

std::optional<Fault> FaultyFileEnv::Match(FileOp op, const std::string& path) {
  absl::MutexLock lock(&mutex_);
  if (crashed_) {
    Fault dead;
    dead.error = 0;
    return dead;
  }
  for (Fault& fault : faults_) {
    if (fault.op != op || path.find(fault.path_contains) == std::string::npos) continue;
    if (fault.skip > 0) {
      --fault.skip;
      continue;
    }
    if (fault.times == 0) continue;
    --fault.times;
    return fault;
  }
  return std::nullopt;
}

bool FaultyFileEnv::Point() {
  absl::MutexLock lock(&mutex_);
  if (crash_at_ && points_ == *crash_at_) crashed_ = true;
  ++points_;
  return crashed_;
}

template <typename Effect>
absl::Status FaultyFileEnv::Change(FileOp op, const std::string& path, Effect effect) {
  if (const auto fault = Match(op, path)) {
    if (fault->after_effect) effect().IgnoreError();
    return AsStatus(*fault, path);
  }
  if (Point()) return Dead();
  absl::Status status = effect();
  if (Point()) return Dead();
  return status;
}

absl::StatusOr<std::string> FaultyFileEnv::ReadFile(const std::string& path) {
  if (const auto fault = Match(FileOp::kRead, path)) return AsStatus(*fault, path);
  return inner_.ReadFile(path);
}

absl::StatusOr<std::string> FaultyFileEnv::ReadPrefix(const std::string& path, size_t bytes) {
  if (const auto fault = Match(FileOp::kRead, path)) return AsStatus(*fault, path);
  return inner_.ReadPrefix(path, bytes);
}

absl::StatusOr<uint64_t> FaultyFileEnv::FileSize(const std::string& path) {
  if (const auto fault = Match(FileOp::kSize, path)) return AsStatus(*fault, path);
  return inner_.FileSize(path);
}

absl::Status FaultyFileEnv::WriteNewFile(const std::string& path, std::string_view bytes) {
  if (const auto fault = Match(FileOp::kWrite, path)) {
    if (fault->torn_at) inner_.WriteNewFile(path, bytes.substr(0, *fault->torn_at)).IgnoreError();
    return AsStatus(*fault, path);
  }
  if (Point()) return Dead();
  if (Point()) {
    inner_.WriteNewFile(path, bytes.substr(0, bytes.size() / 2)).IgnoreError();
    return Dead();
  }
  absl::Status status = inner_.WriteNewFile(path, bytes);
  if (Point()) return Dead();
  return status;
}

absl::Status FaultyFileEnv::Rename(const std::string& from, const std::string& to) {
  return Change(FileOp::kRename, to, [&] { return inner_.Rename(from, to); });
}

absl::Status FaultyFileEnv::Remove(const std::string& path) {
  return Change(FileOp::kRemove, path, [&] { return inner_.Remove(path); });
}

absl::Status FaultyFileEnv::RemoveTree(const std::string& path) {
  return Change(FileOp::kRemove, path, [&] { return inner_.RemoveTree(path); });
}

absl::Status FaultyFileEnv::SyncFolder(const std::string& path) {
  return Change(FileOp::kSync, path, [&] { return inner_.SyncFolder(path); });
}

absl::Status FaultyFileEnv::MakeFolder(const std::string& path) {
  return Change(FileOp::kMakeFolder, path, [&] { return inner_.MakeFolder(path); });
}

absl::StatusOr<std::vector<std::string>> FaultyFileEnv::List(const std::string& path) {
  if (const auto fault = Match(FileOp::kList, path)) return AsStatus(*fault, path);
  return inner_.List(path);
}

absl::StatusOr<FreeSpace> FaultyFileEnv::GetFreeSpace(const std::string& path) {
  if (const auto fault = Match(FileOp::kFreeSpace, path)) return AsStatus(*fault, path);
  {
    absl::MutexLock lock(&mutex_);
    if (space_) return *space_;
  }
  return inner_.GetFreeSpace(path);
}

absl::StatusOr<std::unique_ptr<FileLock>> FaultyFileEnv::Lock(const std::string& path) {
  if (const auto fault = Match(FileOp::kLock, path)) return AsStatus(*fault, path);
  return inner_.Lock(path);
}

}  // namespace stepone::testing_support
