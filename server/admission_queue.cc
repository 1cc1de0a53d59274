#include "server/admission_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace stepone::server {
namespace {

int RoleRank(v1::Role role) {
  if (role == v1::ROLE_FORWARD) return 0;
  return role == v1::ROLE_BACKWARD ? 1 : 2;
}

}  // namespace

absl::Status AdmissionQueue::Push(Entry entry) {
  if (entries_.size() >= options_.max_length) {
    return absl::ResourceExhaustedError(absl::StrCat("queue is full: ", entries_.size(), " jobs wait"));
  }
  const auto of_tenant = static_cast<size_t>(
      std::count_if(entries_.begin(), entries_.end(), [&entry](const Entry& e) { return e.tenant == entry.tenant; }));
  const double share = options_.max_tenant_share * static_cast<double>(options_.max_length);
  if (static_cast<double>(of_tenant) + 1 > share && of_tenant > 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("tenant's part of the queue is full: ", of_tenant, " of its jobs wait"));
  }
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

void AdmissionQueue::PushBack(Entry entry) { entries_.push_back(std::move(entry)); }

int AdmissionQueue::Running(const std::string& tenant) const {
  const auto found = running_.find(tenant);
  return found == running_.end() ? 0 : found->second;
}

bool AdmissionQueue::Before(const Entry& a, const Entry& b) const {
  const auto rank = [this](const Entry& e) {
    return std::make_tuple(!e.blocking, e.priority, Running(e.tenant), RoleRank(e.role), e.id);
  };
  return rank(a) < rank(b);
}

std::optional<AdmissionQueue::Entry> AdmissionQueue::Pop() {
  const auto first = std::min_element(entries_.begin(), entries_.end(),
                                      [this](const Entry& a, const Entry& b) { return Before(a, b); });
  if (first == entries_.end()) return std::nullopt;
  Entry entry = std::move(*first);
  entries_.erase(first);
  ++running_[entry.tenant];
  return entry;
}

void AdmissionQueue::Finished(const std::string& tenant) {
  const auto found = running_.find(tenant);
  if (found != running_.end() && --found->second == 0) running_.erase(found);
}

bool AdmissionQueue::Remove(uint64_t id) {
  return std::erase_if(entries_, [id](const Entry& e) { return e.id == id; }) > 0;
}

bool AdmissionQueue::Raise(uint64_t id) {
  for (Entry& entry : entries_) {
    if (entry.id != id) continue;
    entry.blocking = true;
    return true;
  }
  return false;
}

std::vector<uint64_t> AdmissionQueue::TakeExpired(absl::Time now) {
  std::vector<uint64_t> expired;
  std::erase_if(entries_, [&](const Entry& e) {
    if (e.deadline > now) return false;
    expired.push_back(e.id);
    return true;
  });
  return expired;
}

std::vector<uint64_t> AdmissionQueue::Order() const {
  std::vector<const Entry*> sorted;
  for (const Entry& entry : entries_) sorted.push_back(&entry);
  std::sort(sorted.begin(), sorted.end(), [this](const Entry* a, const Entry* b) { return Before(*a, *b); });
  std::vector<uint64_t> ids;
  for (const Entry* entry : sorted) ids.push_back(entry->id);
  return ids;
}

}  // namespace stepone::server
