#include "server/job_pins.h"

namespace stepone::server {

std::shared_ptr<const v1::Artifact> JobPins::Find(const std::string& job, const Digest& key) {
  const auto found = by_name_.find(Name(job, key));
  if (found == by_name_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->artifact;
}

void JobPins::Pin(const std::string& job, const Digest& key, std::shared_ptr<const v1::Artifact> artifact) {
  Name name(job, key);
  if (const auto found = by_name_.find(name); found != by_name_.end()) {
    bytes_ -= found->second->bytes;
    entries_.erase(found->second);
    by_name_.erase(found);
  }
  const size_t bytes = artifact->ByteSizeLong() + sizeof(Entry);
  entries_.push_front({name, std::move(artifact), bytes});
  by_name_[std::move(name)] = entries_.begin();
  bytes_ += bytes;
  while (bytes_ > max_bytes_ && !entries_.empty()) {
    bytes_ -= entries_.back().bytes;
    by_name_.erase(entries_.back().name);
    entries_.pop_back();
  }
}

}  // namespace stepone::server
