#include "cache/tiered_store.h"

namespace stepone {

absl::StatusOr<EntryInfo> TieredStore::Find(const EntryId& id) {
  for (const auto& tier : tiers_) {
    if (auto info = tier->Find(id); info.ok()) return info;
  }
  return absl::NotFoundError("in no tier");
}

absl::StatusOr<Entry> TieredStore::Get(const EntryId& id) {
  absl::Status fault = absl::NotFoundError("in no tier");
  for (size_t i = 0; i < tiers_.size(); ++i) {
    auto entry = tiers_[i]->Get(id);
    if (entry.ok()) {
      for (size_t nearer = i; nearer-- > 0;) {
        // A tier that does not take it counts that itself; the caller has the bytes.
        tiers_[nearer]->Put(id, entry->bytes, {.overwrite = false, .label = entry->label}).IgnoreError();
      }
      return entry;
    }
    if (!absl::IsNotFound(entry.status())) fault = entry.status();
  }
  return fault;
}

absl::Status TieredStore::Put(const EntryId& id, Blob bytes, const PutOptions& options) {
  absl::Status result = absl::FailedPreconditionError("no tier takes writes");
  bool decided = false;
  for (size_t i = tiers_.size(); i-- > 0;) {
    PutOptions here = options;
    // Once a farther tier took it, it is the entry: a nearer one with something else is behind.
    if (decided) here.overwrite = true;
    const absl::Status status = tiers_[i]->Put(id, bytes, here);
    if (absl::IsAlreadyExists(status) || absl::IsInvalidArgument(status)) return status;
    if (status.ok()) {
      decided = true;
      result = status;
    } else if (!decided && !absl::IsFailedPrecondition(status)) {
      result = status;
    }
  }
  return result;
}

absl::Status TieredStore::ForEach(Kind kind, const Visitor& visit) {
  absl::Status status = absl::UnimplementedError("no tier can be listed");
  for (size_t i = tiers_.size(); i-- > 0;) {
    status = tiers_[i]->ForEach(kind, visit);
    if (!absl::IsUnimplemented(status)) return status;
  }
  return status;
}

std::vector<StoreStats> TieredStore::Stats() const {
  std::vector<StoreStats> all;
  for (const auto& tier : tiers_) {
    for (StoreStats& stats : tier->Stats()) all.push_back(std::move(stats));
  }
  return all;
}

}  // namespace stepone
