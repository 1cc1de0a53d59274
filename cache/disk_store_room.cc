// The disk store's upkeep: room for new entries, and what to do with damaged ones.
#include <algorithm>

#include "cache/disk_store.h"
#include "cache/entry_file.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

// Kept free on the device, so that the store is not what fills it: a part of its size, at most so much.
constexpr uint64_t kMaxReserveBytes = uint64_t{64} << 20;
constexpr uint64_t kReservePart = 64;
constexpr uint64_t kReserveInodes = 16;
// Damaged files are kept to be looked at, but not without a bound.
constexpr size_t kMaxQuarantined = 32;

}  // namespace

bool DiskStore::LowOnSpace(uint64_t bytes) const {
  const auto space = env_.GetFreeSpace(root_);
  if (!space.ok()) return false;
  const uint64_t reserve = std::min(kMaxReserveBytes, space->total_bytes / kReservePart);
  return space->free_bytes < bytes + reserve || space->free_inodes < kReserveInodes;
}

// By the limit first, then by what is really free on the device: a limit above the device's size must not stop writes.
void DiskStore::MakeRoom(uint64_t bytes) {
  std::vector<LruIndex<Held>::Item> victims;
  {
    absl::MutexLock lock(&mutex_);
    victims = lru_.EvictTo(options_.limit_bytes - std::min(bytes, options_.limit_bytes));
  }
  Evict(std::move(victims));
  while (LowOnSpace(bytes)) {
    std::vector<LruIndex<Held>::Item> oldest;
    {
      absl::MutexLock lock(&mutex_);
      if (auto item = lru_.EvictOldest()) oldest.push_back(*std::move(item));
    }
    if (oldest.empty()) return;
    Evict(std::move(oldest));
  }
}

// REQUIRES: the victims are out of lru_ already, so that nobody counts on their bytes.
void DiskStore::Evict(std::vector<LruIndex<Held>::Item> victims) {
  for (const auto& victim : victims) {
    absl::MutexLock stripe(&StripeOf(victim.id));
    {
      absl::MutexLock lock(&mutex_);
      if (lru_.Contains(victim.id)) continue;  // written again meanwhile
      ++stats_.evictions;
    }
    const absl::Status removed = env_.Remove(PathOf(victim.id));
    if (!removed.ok() && !absl::IsNotFound(removed)) {
      absl::MutexLock lock(&mutex_);
      stats_.last_error = std::string(removed.message());
    }
    NoteIndex(index_->Remove(victim.id));
  }
}

void DiskStore::SetAside(const EntryId& id) {
  absl::MutexLock stripe(&StripeOf(id));
  // Another thread may have set it aside and a third may have written it anew.
  const auto file = env_.ReadFile(PathOf(id));
  const absl::Status status = file.ok() ? DecodeEntryFile(id, *file).status() : file.status();
  if (absl::IsDataLoss(status)) SetAsideLocked(id);
}

// REQUIRES: the stripe of `id` is held.
void DiskStore::SetAsideLocked(const EntryId& id) {
  const std::string folder = StrCat(root_, "/quarantine");
  uint64_t number;
  {
    absl::MutexLock lock(&mutex_);
    number = next_quarantine_++;
    ++stats_.quarantined;
  }
  const std::string name = StrCat(absl::Dec(number, absl::kZeroPad8), "-", KindName(id.kind), "-", id.key.Hex());
  absl::Status status = env_.MakeFolder(folder);
  if (status.ok()) status = env_.Rename(PathOf(id), StrCat(folder, "/", name));
  // Out of the way in any case: a damaged entry must not stop a good one from being written.
  if (!status.ok()) env_.RemoveTree(PathOf(id)).IgnoreError();
  Forget(id);
  auto names = env_.List(folder);
  if (!names.ok() || names->size() <= kMaxQuarantined) return;
  std::sort(names->begin(), names->end());
  for (size_t i = 0; i + kMaxQuarantined < names->size(); ++i) {
    env_.RemoveTree(StrCat(folder, "/", (*names)[i])).IgnoreError();
  }
}

void DiskStore::DropIfGone(const EntryId& id) {
  absl::MutexLock stripe(&StripeOf(id));
  if (absl::IsNotFound(env_.FileSize(PathOf(id)).status())) Forget(id);
}

// REQUIRES: the stripe of `id` is held.
void DiskStore::Forget(const EntryId& id) {
  {
    absl::MutexLock lock(&mutex_);
    lru_.Remove(id);
  }
  NoteIndex(index_->Remove(id));
}

// An index that lags is no fault of an entry: the next sweep puts it right. The health answer shows the text.
void DiskStore::NoteIndex(const absl::Status& status) {
  if (status.ok()) return;
  absl::MutexLock lock(&mutex_);
  stats_.last_error = std::string(status.message());
}

}  // namespace stepone
