#include "server/failure_memory.h"

#include <utility>

namespace stepone::server {

void FailureMemory::Remember(const Digest& key, absl::Status failure, absl::Time now) {
  Forget(key);
  if (max_entries_ == 0) return;
  if (failures_.size() >= max_entries_) Forget(Digest(oldest_first_.front()));
  oldest_first_.push_back(key);
  failures_[key] = {std::move(failure), now + time_to_live_, std::prev(oldest_first_.end())};
}

void FailureMemory::Forget(const Digest& key) {
  const auto found = failures_.find(key);
  if (found == failures_.end()) return;
  oldest_first_.erase(found->second.age);
  failures_.erase(found);
}

std::optional<absl::Status> FailureMemory::Recall(const Digest& key, absl::Time now) {
  const auto found = failures_.find(key);
  if (found == failures_.end()) return std::nullopt;
  if (found->second.until > now) return found->second.status;
  Forget(key);
  return std::nullopt;
}

}  // namespace stepone::server
