#include "cache/verifying_store.h"

#include <utility>

#include "cache/entry_file.h"

namespace stepone {
namespace {

// More than this, and the store behind is broken as a whole.
constexpr size_t kMaxRemembered = 10000;

}  // namespace

absl::StatusOr<Entry> VerifyingStore::Get(const EntryId& id) {
  auto packed = inner_->Get(id);
  if (!packed.ok()) return packed.status();
  auto entry = DecodeEntryFile(id, *packed->bytes);
  if (entry.ok()) return Entry{MakeBlob(std::move(entry->content)), std::move(entry->label), packed->tier};
  damaged_count_.fetch_add(1, std::memory_order_relaxed);
  absl::MutexLock lock(&mutex_);
  if (damaged_.size() < kMaxRemembered) damaged_.insert(id);
  return entry.status();
}

absl::Status VerifyingStore::Put(const EntryId& id, Blob bytes, const PutOptions& options) {
  if (absl::Status status = CheckPut(id, *bytes, options); !status.ok()) return status;
  PutOptions inner = options;
  {
    absl::MutexLock lock(&mutex_);
    if (damaged_.contains(id)) inner.overwrite = true;
  }
  absl::Status status = inner_->Put(id, MakeBlob(EncodeEntryFile(id, options.label, *bytes)), inner);
  if (status.ok()) {
    absl::MutexLock lock(&mutex_);
    damaged_.erase(id);
  }
  return status;
}

std::vector<StoreStats> VerifyingStore::Stats() const {
  std::vector<StoreStats> stats = inner_->Stats();
  if (!stats.empty()) stats.front().quarantined += damaged_count_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace stepone
