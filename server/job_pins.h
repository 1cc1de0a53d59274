// What the ranks of one job have been given.
#ifndef STEPONE_SERVER_JOB_PINS_H_
#define STEPONE_SERVER_JOB_PINS_H_

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "proto/digest.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::server {

// Keeps the artifact that a job got for a key, so that a rank that asks later gets the same bytes, whatever happened to
// the store meanwhile. Bounded by bytes; the longest unused pin goes first. Tenants are told apart by the key, which
// contains them. Not thread-safe; owned by ArtifactDesk.
class JobPins {
 public:
  explicit JobPins(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Null when the job has none. REQUIRES: a job's name that is not empty.
  std::shared_ptr<const v1::Artifact> Find(const std::string& job, const Digest& key);
  // Replaces what the job had.
  void Pin(const std::string& job, const Digest& key, std::shared_ptr<const v1::Artifact> artifact);

 private:
  using Name = std::pair<std::string, Digest>;
  struct Entry {
    Name name;
    std::shared_ptr<const v1::Artifact> artifact;
    size_t bytes = 0;
  };

  const size_t max_bytes_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  absl::flat_hash_map<Name, std::list<Entry>::iterator> by_name_;
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_JOB_PINS_H_
