// A wrapper that trusts nothing: for stores whose bytes others can change or lose.
#ifndef STEPONE_CACHE_VERIFYING_STORE_H_
#define STEPONE_CACHE_VERIFYING_STORE_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "cache/store.h"

namespace stepone {

// Packs each entry with its id, label and a checksum on the way in (the format of entry_file.h), and checks them on the
// way out. An entry that fails is kDataLoss, and the next Put of its key overwrites it, so that a damaged first writer
// does not win for ever. Thread-safe.
//
// It finds accidents and mixed-up entries. Against malice there are the signatures of artifacts (proto/signing.h).
class VerifyingStore final : public Store {
 public:
  explicit VerifyingStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}

  // `size` is that of the packed entry.
  absl::StatusOr<EntryInfo> Find(const EntryId& id) override { return inner_->Find(id); }
  absl::StatusOr<Entry> Get(const EntryId& id) override;
  absl::Status Put(const EntryId& id, Blob bytes, const PutOptions& options = {}) override;
  absl::Status ForEach(Kind kind, const Visitor& visit) override { return inner_->ForEach(kind, visit); }
  // The inner store's, with what failed the check counted as quarantined.
  std::vector<StoreStats> Stats() const override;

 private:
  const std::unique_ptr<Store> inner_;
  std::atomic<uint64_t> damaged_count_{0};
  absl::Mutex mutex_;
  absl::flat_hash_set<EntryId> damaged_ ABSL_GUARDED_BY(mutex_);  // bounded
};

}  // namespace stepone

#endif  // STEPONE_CACHE_VERIFYING_STORE_H_
