// Which job runs next, and which is turned away.
#ifndef STEPONE_SERVER_ADMISSION_QUEUE_H_
#define STEPONE_SERVER_ADMISSION_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "stepone/v1/graph.pb.h"

namespace stepone::server {

// Orders jobs: those that block a trainer's step; then lower `priority`; then tenants that have fewer jobs running;
// then forward before backward before anything else; then first come, first served. Not thread-safe; owned by
// Dispatcher.
class AdmissionQueue {
 public:
  struct Options {
    size_t max_length = 256;
    // A tenant may fill at most this part of the queue, so that others still get in.
    double max_tenant_share = 1.0;
  };
  struct Entry {
    uint64_t id = 0;  // grows in the order of arrival; a job that comes back keeps its own
    std::string tenant;
    v1::Role role = v1::ROLE_UNSPECIFIED;
    bool blocking = false;
    int priority = 0;
    absl::Time deadline = absl::InfiniteFuture();
  };

  explicit AdmissionQueue(Options options) : options_(options) {}

  // kResourceExhausted when the queue, or the tenant's part of it, is full.
  absl::Status Push(Entry entry);
  // Takes back a job that was admitted before; never refuses.
  void PushBack(Entry entry);
  // The most urgent entry. The caller reports with Finished() when its job no longer occupies a worker.
  std::optional<Entry> Pop();
  void Finished(const std::string& tenant);

  // These return false when the entry is not waiting.
  bool Remove(uint64_t id);
  bool Raise(uint64_t id);
  // Removes and returns the entries whose deadline is past.
  std::vector<uint64_t> TakeExpired(absl::Time now);
  // Entries in the order in which they would run now.
  std::vector<uint64_t> Order() const;

  size_t size() const { return entries_.size(); }

 private:
  bool Before(const Entry& a, const Entry& b) const;
  int Running(const std::string& tenant) const;

  const Options options_;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, int> running_;  // per tenant, without zeros
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_ADMISSION_QUEUE_H_
