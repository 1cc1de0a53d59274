#include "cache/disk_store.h"

#include <unistd.h>

#include <random>

#include "absl/strings/str_format.h"
#include "cache/entry_file.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

constexpr char kFormat[] = "store-v1";
// Uses that are lost when the process dies; they only decide who is evicted first.
constexpr size_t kUsesPerTransaction = 256;

std::string RandomToken() {
  std::random_device device;
  return absl::StrFormat("%x-%08x", getpid(), device());
}

}  // namespace

DiskStore::DiskStore(DiskStoreOptions options)
    : options_(std::move(options)),
      root_(StrCat(options_.path, "/", kFormat)),
      token_(RandomToken()),
      env_(*options_.env) {
  stats_.name = "disk";
  stats_.limit_bytes = options_.limit_bytes;
}

std::string DiskStore::FolderOf(Kind kind, size_t folder) const {
  return StrCat(root_, "/", KindName(kind), "/", absl::Hex(folder, absl::kZeroPad2));
}

std::string DiskStore::PathOf(const EntryId& id) const { return StrCat(FolderOf(id), "/", id.key.Hex().substr(2)); }

absl::StatusOr<EntryInfo> DiskStore::Find(const EntryId& id) {
  {
    absl::MutexLock lock(&mutex_);
    if (const auto* item = lru_.Find(id)) return EntryInfo{item->value.content_bytes, Tier::kDisk};
  }
  if (!MayBeUnindexed()) return absl::NotFoundError("not on disk");
  const std::string path = PathOf(id);
  const auto size = env_.FileSize(path);
  if (!size.ok()) return absl::NotFoundError("not on disk");
  const auto prefix = env_.ReadPrefix(path, kMaxEntryHeadBytes);
  if (!prefix.ok()) return absl::NotFoundError("not on disk");
  const auto head = PeekEntryFile(id, *prefix, *size);
  if (!head.ok()) return absl::NotFoundError("not on disk");
  return EntryInfo{head->content_bytes, Tier::kDisk};
}

absl::StatusOr<Entry> DiskStore::Get(const EntryId& id) {
  bool indexed;
  {
    absl::MutexLock lock(&mutex_);
    indexed = lru_.Contains(id);
    if (!indexed && !MayBeUnindexed()) {
      ++stats_.misses;
      return absl::NotFoundError("not on disk");
    }
  }
  absl::StatusOr<std::string> file = ReadEntryFile(id);
  absl::StatusOr<EntryFile> decoded = file.ok() ? DecodeEntryFile(id, *file) : file.status();
  if (decoded.ok()) {
    if (!indexed && writable()) {
      std::vector<IndexRow> adopted;
      Adopt(id, adopted);
      Record(adopted);
    }
    NoteUse(id);
    return Entry{MakeBlob(std::move(decoded->content)), std::move(decoded->label), Tier::kDisk};
  }
  const absl::Status status = decoded.status();
  if (absl::IsDataLoss(status) && writable()) SetAside(id);
  if (absl::IsNotFound(status) && indexed) DropIfGone(id);
  absl::MutexLock lock(&mutex_);
  if (absl::IsNotFound(status)) {
    ++stats_.misses;
    return absl::NotFoundError("not on disk");
  }
  ++stats_.failed_reads;
  stats_.last_error = std::string(status.message());
  // A folder that refuses access is the tier's fault, not the entry's.
  return absl::IsDataLoss(status) ? status : absl::UnavailableError(status.message());
}

// A network file system may call a name stale that another host has just replaced; asking again finds the new file.
absl::StatusOr<std::string> DiskStore::ReadEntryFile(const EntryId& id) {
  const std::string path = PathOf(id);
  absl::StatusOr<std::string> file = env_.ReadFile(path);
  return absl::IsUnavailable(file.status()) ? env_.ReadFile(path) : file;
}

void DiskStore::NoteUse(const EntryId& id) {
  bool flush;
  {
    absl::MutexLock lock(&mutex_);
    ++stats_.hits;
    if (!writable() || lru_.Touch(id) == nullptr) return;
    unsaved_uses_.emplace_back(id, ++clock_);
    flush = unsaved_uses_.size() >= kUsesPerTransaction;
  }
  if (flush) FlushUses();
}

void DiskStore::FlushUses() {
  std::vector<std::pair<EntryId, uint64_t>> uses;
  {
    absl::MutexLock lock(&mutex_);
    uses.swap(unsaved_uses_);
  }
  if (!uses.empty()) NoteIndex(index_->Touch(uses));
}

absl::Status DiskStore::Put(const EntryId& id, Blob bytes, const PutOptions& options) {
  if (absl::Status status = CheckPut(id, *bytes, options); !status.ok()) return status;
  if (!writable()) return absl::FailedPreconditionError(StrCat("the store is read-only: ", options_.path));
  if (!options.overwrite && Find(id).ok()) return absl::AlreadyExistsError("on disk already");
  const std::string file = EncodeEntryFile(id, options.label, *bytes);
  if (file.size() > options_.limit_bytes) {
    return CountFailedWrite(absl::ResourceExhaustedError(
        StrCat("an entry of ", file.size(), " bytes is larger than the limit of ", options_.limit_bytes)));
  }
  MakeRoom(file.size());
  absl::Status status = PutLocked(id, file, bytes->size(), options);
  if (absl::IsResourceExhausted(status)) {
    // Somebody else took the space after it was measured.
    MakeRoom(file.size());
    status = PutLocked(id, file, bytes->size(), options);
  }
  if (absl::IsAlreadyExists(status)) return status;
  return status.ok() ? status : CountFailedWrite(std::move(status));
}

absl::Status DiskStore::PutLocked(const EntryId& id, const std::string& file, uint64_t content_bytes,
                                  const PutOptions& options) {
  absl::MutexLock stripe(&StripeOf(id));
  if (!options.overwrite && Find(id).ok()) return absl::AlreadyExistsError("on disk already");
  if (absl::Status status = Publish(id, file); !status.ok()) return status;
  IndexRow row{id, file.size(), content_bytes, 0, options.label};
  {
    absl::MutexLock lock(&mutex_);
    row.used = ++clock_;
    lru_.Put(id, row.file_bytes, Held{content_bytes});
    ++stats_.writes;
  }
  NoteIndex(index_->Put(row));
  return absl::OkStatus();
}

// REQUIRES: the stripe of `id` is held. After a crash at any step there is the old file, the new one, or none, and
// perhaps a temporary file that the next sweep removes.
absl::Status DiskStore::Publish(const EntryId& id, const std::string& file) {
  if (absl::Status status = EnsureFolder(id); !status.ok()) return status;
  const std::string folder = FolderOf(id);
  const std::string temporary = StrCat(folder, "/.tmp-", token_, "-", next_temporary_.fetch_add(1));
  absl::Status status = env_.WriteNewFile(temporary, file);
  if (absl::IsNotFound(status)) {
    // Somebody removed the folder.
    folder_exists_[static_cast<size_t>(id.kind) - 1][id.key.bytes[0]] = false;
    status = EnsureFolder(id);
    if (status.ok()) status = env_.WriteNewFile(temporary, file);
  }
  if (status.ok()) status = env_.Rename(temporary, PathOf(id));
  if (absl::IsDataLoss(status)) {
    // A folder, the one thing that a rename does not replace. Without a row of the index no Get looks there and finds
    // it.
    SetAsideLocked(id);
    status = env_.Rename(temporary, PathOf(id));
  }
  if (!status.ok()) {
    env_.Remove(temporary).IgnoreError();  // the sweep finds what can't be removed now
    return status;
  }
  return env_.SyncFolder(folder);
}

absl::Status DiskStore::EnsureFolder(const EntryId& id) {
  std::atomic<bool>& exists = folder_exists_[static_cast<size_t>(id.kind) - 1][id.key.bytes[0]];
  if (exists.load(std::memory_order_acquire)) return absl::OkStatus();
  if (absl::Status status = env_.MakeFolder(FolderOf(id)); !status.ok()) return status;
  for (const std::string& parent : {StrCat(root_, "/", KindName(id.kind)), root_}) {
    if (absl::Status status = env_.SyncFolder(parent); !status.ok()) return status;
  }
  exists.store(true, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status DiskStore::CountFailedWrite(absl::Status status) {
  absl::MutexLock lock(&mutex_);
  ++stats_.failed_writes;
  stats_.last_error = std::string(status.message());
  if (absl::IsResourceExhausted(status)) return status;
  return absl::UnavailableError(status.message());
}

absl::Status DiskStore::ForEach(Kind kind, const Visitor& visit) {
  if (!writable()) return absl::UnimplementedError("a read-only store has no index to list");
  FlushUses();
  return index_->ForEach(kind, visit);
}

std::vector<StoreStats> DiskStore::Stats() const {
  absl::MutexLock lock(&mutex_);
  StoreStats stats = stats_;
  stats.entries = lru_.size();
  stats.bytes = lru_.bytes();
  stats.writable = writable();
  return {stats};
}

}  // namespace stepone
