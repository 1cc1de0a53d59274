// Failures that would only be repeated: answered at once for a while.
#ifndef STEPONE_SERVER_FAILURE_MEMORY_H_
#define STEPONE_SERVER_FAILURE_MEMORY_H_

#include <cstddef>
#include <list>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "proto/digest.h"

namespace stepone::server {

// Statuses by graph key. A key contains the compiler's fingerprint, so another compiler is asked anew.
// Not thread-safe; owned by CompileBroker.
class FailureMemory {
 public:
  FailureMemory(absl::Duration time_to_live, size_t max_entries)
      : time_to_live_(time_to_live), max_entries_(max_entries) {}

  // The oldest entry goes when there are too many.
  void Remember(const Digest& key, absl::Status failure, absl::Time now);
  void Forget(const Digest& key);
  // The failure that was remembered less than the time to live ago.
  std::optional<absl::Status> Recall(const Digest& key, absl::Time now);

 private:
  struct Failure {
    absl::Status status;
    absl::Time until;
    std::list<Digest>::iterator age;
  };

  const absl::Duration time_to_live_;
  const size_t max_entries_;
  std::list<Digest> oldest_first_;
  absl::flat_hash_map<Digest, Failure> failures_;
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_FAILURE_MEMORY_H_
