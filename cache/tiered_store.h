// Several stores behind one another, nearest first.
#ifndef STEPONE_CACHE_TIERED_STORE_H_
#define STEPONE_CACHE_TIERED_STORE_H_

#include <memory>
#include <vector>

#include "cache/store.h"

namespace stepone {

// Reads ask tier after tier; what a farther one has is copied into the nearer ones. Writes begin at the farthest tier,
// since it decides who was first; a tier that fails is passed over, and Put is OK when any tier kept the entry.
// Thread-safe.
class TieredStore final : public Store {
 public:
  // REQUIRES: at least one tier.
  explicit TieredStore(std::vector<std::unique_ptr<Store>> tiers) : tiers_(std::move(tiers)) {}

  absl::StatusOr<EntryInfo> Find(const EntryId& id) override;
  // kDataLoss or kUnavailable when no tier has the entry and one has a fault; kNotFound when all say so.
  absl::StatusOr<Entry> Get(const EntryId& id) override;
  // The answer of the farthest tier that is not read-only or faulty.
  absl::Status Put(const EntryId& id, Blob bytes, const PutOptions& options = {}) override;
  // Of the farthest tier that can be listed.
  absl::Status ForEach(Kind kind, const Visitor& visit) override;
  std::vector<StoreStats> Stats() const override;

 private:
  const std::vector<std::unique_ptr<Store>> tiers_;
};

}  // namespace stepone

#endif  // STEPONE_CACHE_TIERED_STORE_H_
