// Opening a disk store, and the sweep that compares its index with its files.
#include <algorithm>
#include <cstdlib>

#include "cache/disk_store.h"
#include "cache/entry_file.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

constexpr char kIndexName[] = "index.sqlite";
constexpr char kTemporaryPrefix[] = ".tmp-";
constexpr size_t kRowsPerTransaction = 1000;

bool IsKnown(Kind kind) { return std::find(std::begin(kAllKinds), std::end(kAllKinds), kind) != std::end(kAllKinds); }

}  // namespace

absl::StatusOr<std::unique_ptr<DiskStore>> DiskStore::Open(DiskStoreOptions options) {
  std::unique_ptr<DiskStore> store(new DiskStore(std::move(options)));
  if (absl::Status status = store->OpenFolder(); !status.ok()) return status;
  if (store->folder_lock_ != nullptr) {
    if (absl::Status status = store->OpenIndex(); !status.ok()) return status;
    store->sweeper_ = std::thread([raw = store.get()] { raw->Sweep(); });
  } else {
    store->sweep_done_.Notify();
  }
  return store;
}

DiskStore::~DiskStore() {
  stopping_ = true;
  if (sweeper_.joinable()) sweeper_.join();
  if (writable()) FlushUses();
}

// Leaves folder_lock_ empty when the store is read-only.
absl::Status DiskStore::OpenFolder() {
  if (!options_.read_only) {
    absl::Status status = env_.MakeFolder(root_);
    if (status.ok()) {
      auto lock = env_.Lock(StrCat(root_, "/LOCK"));
      if (lock.ok()) {
        folder_lock_ = *std::move(lock);
        return absl::OkStatus();
      }
      status = lock.status();
    }
    if (absl::IsFailedPrecondition(status)) return status;
    read_only_reason_ = std::string(status.message());
  }
  const auto names = env_.List(root_);
  if (names.ok()) return absl::OkStatus();
  return absl::Status(names.status().code(),
                      StrCat(names.status().message(), read_only_reason_.empty() ? "" : "; ", read_only_reason_));
}

// Never fails for want of a good index: a damaged one is replaced, and where none can be written (a full disk), one in
// memory serves until the next start. The sweep fills both from the files.
absl::Status DiskStore::OpenIndex() {
  const std::string path = StrCat(root_, "/", kIndexName);
  absl::Status status = LoadIndex(path);
  if (absl::IsDataLoss(status)) {
    {
      absl::MutexLock lock(&mutex_);
      ++stats_.quarantined;
    }
    for (const char* suffix : {"", "-wal", "-shm"}) env_.RemoveTree(StrCat(path, suffix)).IgnoreError();
    NoteIndex(status);
    status = LoadIndex(path);
  }
  if (status.ok()) return status;
  NoteIndex(status);
  return LoadIndex(":memory:");
}

absl::Status DiskStore::LoadIndex(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  lru_ = {};
  auto index = DiskIndex::Open(path);
  if (!index.ok()) return index.status();
  absl::Status status = (*index)->Load([this](const IndexRow& row) {
    mutex_.AssertHeld();
    if (!IsKnown(row.id.kind)) return;
    lru_.Put(row.id, row.file_bytes, Held{row.content_bytes});
    clock_ = row.used;
  });
  if (status.ok()) index_ = *std::move(index);
  return status;
}

SweepReport DiskStore::WaitForSweep() {
  sweep_done_.WaitForNotification();
  absl::MutexLock lock(&mutex_);
  return sweep_report_;
}

void DiskStore::Sweep() {
  if (const auto names = env_.List(StrCat(root_, "/quarantine")); names.ok()) {
    absl::MutexLock lock(&mutex_);
    for (const std::string& name : *names) {
      next_quarantine_ = std::max<uint64_t>(next_quarantine_, std::strtoull(name.c_str(), nullptr, 10) + 1);
    }
  }
  std::vector<IndexRow> adopted;
  for (Kind kind : kAllKinds) {
    for (size_t folder = 0; folder < kFolders && !stopping_; ++folder) SweepFolder(kind, folder, adopted);
  }
  Record(adopted);
  if (!stopping_) SweepRows();
  MakeRoom(0);  // the limit may be lower than last time
  sweep_done_.Notify();
}

void DiskStore::SweepFolder(Kind kind, size_t folder, std::vector<IndexRow>& adopted) {
  const std::string path = FolderOf(kind, folder);
  const auto names = env_.List(path);
  if (!names.ok()) return;
  const std::string prefix = StrCat(absl::Hex(folder, absl::kZeroPad2));
  for (const std::string& name : *names) {
    if (stopping_) return;
    if (name.starts_with(kTemporaryPrefix)) {
      // This process's own are being written. Others' are dead: we hold the folder's lock.
      if (name.starts_with(StrCat(kTemporaryPrefix, token_))) continue;
      if (!env_.RemoveTree(StrCat(path, "/", name)).ok()) continue;
      absl::MutexLock lock(&mutex_);
      ++sweep_report_.temporaries_removed;
      continue;
    }
    const auto key = Digest::FromHex(StrCat(prefix, name));
    if (!key) continue;  // not ours
    Adopt({kind, *key}, adopted);
    if (adopted.size() >= kRowsPerTransaction) Record(adopted);
  }
}

// Gives a file without a row its place in the index; a file that can't be an entry is set aside.
void DiskStore::Adopt(const EntryId& id, std::vector<IndexRow>& adopted) {
  absl::MutexLock stripe(&StripeOf(id));
  {
    absl::MutexLock lock(&mutex_);
    if (lru_.Contains(id)) return;
  }
  const std::string path = PathOf(id);
  const auto size = env_.FileSize(path);
  absl::Status status = size.status();
  if (status.ok()) {
    const auto prefix = env_.ReadPrefix(path, kMaxEntryHeadBytes);
    const absl::StatusOr<EntryHead> head = prefix.ok() ? PeekEntryFile(id, *prefix, *size) : prefix.status();
    status = head.status();
    if (status.ok()) {
      adopted.push_back({id, *size, head->content_bytes, 0, head->label});
      absl::MutexLock lock(&mutex_);
      lru_.Put(id, *size, Held{head->content_bytes});
      adopted.back().used = ++clock_;
      ++sweep_report_.adopted;
      return;
    }
  }
  if (!absl::IsDataLoss(status)) return;  // evicted meanwhile, or not readable now
  SetAsideLocked(id);
  absl::MutexLock lock(&mutex_);
  ++sweep_report_.damaged;
}

void DiskStore::Record(std::vector<IndexRow>& adopted) {
  if (!adopted.empty()) NoteIndex(index_->PutAll(adopted));
  adopted.clear();
}

// Drops rows whose file is gone. Only rows of folders that could be looked into: a folder that refuses access now may
// come back.
void DiskStore::SweepRows() {
  std::vector<EntryId> ids;
  {
    absl::MutexLock lock(&mutex_);
    ids.reserve(lru_.size());
    for (const auto& item : lru_.order()) ids.push_back(item.id);
  }
  std::vector<EntryId> gone;
  for (const EntryId& id : ids) {
    if (stopping_) break;
    if (!absl::IsNotFound(env_.FileSize(PathOf(id)).status())) continue;
    absl::MutexLock stripe(&StripeOf(id));
    if (!absl::IsNotFound(env_.FileSize(PathOf(id)).status())) continue;
    gone.push_back(id);
    absl::MutexLock lock(&mutex_);
    lru_.Remove(id);
    ++sweep_report_.rows_removed;
  }
  // An entry that was written again since then loses its row, not its file: the next sweep adopts it.
  NoteIndex(index_->RemoveAll(gone));
}

}  // namespace stepone
