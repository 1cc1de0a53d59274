// A store on disk: one file per entry, and an index that makes reopening fast.
#ifndef STEPONE_CACHE_DISK_STORE_H_
#define STEPONE_CACHE_DISK_STORE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "cache/disk_index.h"
#include "cache/file_env.h"
#include "cache/lru_index.h"
#include "cache/store.h"

namespace stepone {

struct DiskStoreOptions {
  std::string path;  // folder; created if need be
  uint64_t limit_bytes = uint64_t{10} << 30;
  bool read_only = false;
  FileEnv* env = &FileEnv::Real();  // must outlive the store
};

// What the sweep after opening found.
struct SweepReport {
  uint64_t temporaries_removed = 0;
  uint64_t adopted = 0;       // files without a row
  uint64_t rows_removed = 0;  // rows without a file
  uint64_t damaged = 0;       // set aside
};

// See cache/README.md for the layout and for what a crash can leave. One process owns a folder for writing; any number
// may read it. Thread-safe: operations on one entry are serialised, reads are not blocked by them.
//
// A file is the truth about its entry, and each read checks it whole. The index is a copy that makes opening, eviction
// and listing fast; until the sweep after opening has ended, entries that the index lacks are looked for on disk.
class DiskStore final : public Store {
 public:
  // Opens read-only when asked to, or when the folder exists but can't be written; see writable(). kFailedPrecondition:
  // another process owns the folder. kPermissionDenied or kNotFound: there is nothing that can be read. Each names the
  // path.
  static absl::StatusOr<std::unique_ptr<DiskStore>> Open(DiskStoreOptions options);
  ~DiskStore() override;

  absl::StatusOr<EntryInfo> Find(const EntryId& id) override;
  absl::StatusOr<Entry> Get(const EntryId& id) override;
  absl::Status Put(const EntryId& id, Blob bytes, const PutOptions& options = {}) override;
  // kUnimplemented when the store is read-only.
  absl::Status ForEach(Kind kind, const Visitor& visit) override;
  std::vector<StoreStats> Stats() const override;

  bool writable() const { return index_ != nullptr; }
  // Why a store that should be writable is not; empty otherwise.
  const std::string& read_only_reason() const { return read_only_reason_; }
  // Blocks until the sweep that Open started has ended.
  SweepReport WaitForSweep();

 private:
  struct Held {
    uint64_t content_bytes = 0;
  };
  static constexpr size_t kStripes = 64;
  static constexpr size_t kFolders = 256;
  static constexpr size_t kKinds = std::size(kAllKinds);

  explicit DiskStore(DiskStoreOptions options);

  // Opening (disk_store_open.cc).
  absl::Status OpenFolder();
  absl::Status OpenIndex();
  absl::Status LoadIndex(const std::string& path);
  void Sweep();
  void SweepFolder(Kind kind, size_t folder, std::vector<IndexRow>& adopted);
  void SweepRows();
  void Adopt(const EntryId& id, std::vector<IndexRow>& adopted);
  void Record(std::vector<IndexRow>& adopted);

  // One entry (disk_store.cc).
  absl::Status PutLocked(const EntryId& id, const std::string& file, uint64_t content_bytes, const PutOptions& options);
  absl::Status Publish(const EntryId& id, const std::string& file);
  absl::Status EnsureFolder(const EntryId& id);
  absl::StatusOr<std::string> ReadEntryFile(const EntryId& id);
  bool MayBeUnindexed() const { return !writable() || !sweep_done_.HasBeenNotified(); }
  void NoteUse(const EntryId& id);
  void FlushUses();
  absl::Status CountFailedWrite(absl::Status status);

  // Room and damage (disk_store_room.cc).
  void MakeRoom(uint64_t bytes);
  void Evict(std::vector<LruIndex<Held>::Item> victims);
  bool LowOnSpace(uint64_t bytes) const;
  void SetAside(const EntryId& id);
  void SetAsideLocked(const EntryId& id);
  void DropIfGone(const EntryId& id);
  void Forget(const EntryId& id);
  void NoteIndex(const absl::Status& status);

  std::string FolderOf(Kind kind, size_t folder) const;
  std::string FolderOf(const EntryId& id) const { return FolderOf(id.kind, id.key.bytes[0]); }
  std::string PathOf(const EntryId& id) const;
  // Serialises changes of one entry. Never hold two, and never take one while holding mutex_.
  absl::Mutex& StripeOf(const EntryId& id) { return stripes_[id.key.bytes[1] % kStripes]; }

  const DiskStoreOptions options_;
  const std::string root_;   // with the format's version
  const std::string token_;  // marks this process's temporary files
  FileEnv& env_;
  std::string read_only_reason_;
  std::unique_ptr<FileLock> folder_lock_;
  std::unique_ptr<DiskIndex> index_;  // null when read-only

  std::array<absl::Mutex, kStripes> stripes_;
  std::array<std::array<std::atomic<bool>, kFolders>, kKinds> folder_exists_{};
  std::atomic<uint64_t> next_temporary_{0};

  mutable absl::Mutex mutex_;
  LruIndex<Held> lru_ ABSL_GUARDED_BY(mutex_);
  StoreStats stats_ ABSL_GUARDED_BY(mutex_);
  uint64_t clock_ ABSL_GUARDED_BY(mutex_) = 0;  // of uses; never the time of day, never the file's atime
  std::vector<std::pair<EntryId, uint64_t>> unsaved_uses_ ABSL_GUARDED_BY(mutex_);
  SweepReport sweep_report_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_quarantine_ ABSL_GUARDED_BY(mutex_) = 0;

  absl::Notification sweep_done_;
  std::atomic<bool> stopping_{false};
  std::thread sweeper_;
};

}  // namespace stepone

#endif  // STEPONE_CACHE_DISK_STORE_H_
