// Where bytes are kept by key. Three verbs; every tier (memory, disk, far) and every wrapper is a Store.
#ifndef STEPONE_CACHE_STORE_H_
#define STEPONE_CACHE_STORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/digest.h"

namespace stepone {

// Separates name spaces of keys. Numbers are stored on disk and must not be changed.
enum class Kind : uint8_t {
  kArtifact = 1,  // graph key -> artifact with the material of its key (artifact_cache.h)
  kObject = 2,    // SHA-256 of the bytes -> the bytes
  kKernel = 3,    // kernel key -> SHA-256 of its object, 32 raw bytes
  kBundle = 4,    // trace key -> signed bundle with the material of its key (bundle_cache.h)
};

// All of them, by number from 1 on.
inline constexpr Kind kAllKinds[] = {Kind::kArtifact, Kind::kObject, Kind::kKernel, Kind::kBundle};

// "artifact", "object", "kernel", "bundle"; as folder names and metric labels.
std::string_view KindName(Kind kind);

// Names one entry. Regular type.
struct EntryId {
  Kind kind = Kind::kObject;
  Digest key;

  auto operator<=>(const EntryId&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const EntryId& id) {
    return H::combine(std::move(h), id.kind, id.key);
  }
};

// Bytes that many readers share. Never null where a function returns one.
using Blob = std::shared_ptr<const std::string>;

inline Blob MakeBlob(std::string bytes) { return std::make_shared<const std::string>(std::move(bytes)); }

// Which tier an answer came from.
enum class Tier { kMemory, kDisk, kFar };

struct EntryInfo {
  uint64_t size = 0;  // of the content, in bytes
  Tier tier = Tier::kMemory;
};

struct Entry {
  Blob bytes;
  std::string label;  // as given to Put
  Tier tier = Tier::kMemory;
};

struct PutOptions {
  // Replace an entry that is there; otherwise the first writer wins.
  bool overwrite = false;
  // Opaque bytes kept beside the entry for ForEach; at most kMaxLabelBytes.
  std::string label;
};

inline constexpr size_t kMaxLabelBytes = 256;

// Counters since the store was opened; `entries`, `bytes` and `limit_bytes` are what holds now.
struct StoreStats {
  std::string name;  // "memory", "disk", ...
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t writes = 0;
  uint64_t failed_writes = 0;  // not kept though they should have been
  uint64_t failed_reads = 0;   // I/O errors; each was answered as a miss
  uint64_t evictions = 0;
  uint64_t quarantined = 0;  // damaged entries that were set aside
  uint64_t entries = 0;
  uint64_t bytes = 0;  // what the limit counts: content in memory, files on disk
  uint64_t limit_bytes = 0;
  bool writable = true;
  std::string last_error;  // text of the latest failure, for the health answer; empty if there was none
};

// What every store asks of an entry before it keeps it; kInvalidArgument otherwise.
absl::Status CheckPut(const EntryId& id, std::string_view bytes, const PutOptions& options);

// Thread-safe. Calls may block on a disk or a network, but never on another caller's compile.
//
// Errors are advice about one entry, never a reason to fail a request:
//   kNotFound            Find, Get: a miss.
//   kDataLoss            Get: the entry was damaged; it was set aside and the next Put of this key stores anew.
//   kUnavailable         Get, Put: the tier has a fault now (I/O error, network).
//   kAlreadyExists       Put: another writer was first, and its entry stays. Get returns it.
//   kResourceExhausted   Put: no room, or the entry is larger than the store.
//   kFailedPrecondition  Put: the store is read-only.
//   kInvalidArgument     Put: the label is too long, or an object's key is not its digest.
class Store {
 public:
  virtual ~Store() = default;

  // Looks an entry up without reading it. Neither counts as a hit or miss nor as a use.
  virtual absl::StatusOr<EntryInfo> Find(const EntryId& id) = 0;

  // Reads an entry; what comes back has passed every check the store can make.
  virtual absl::StatusOr<Entry> Get(const EntryId& id) = 0;

  // Keeps `bytes`. Once it returned OK on a durable tier, the entry survives a crash of the process and of the machine.
  virtual absl::Status Put(const EntryId& id, Blob bytes, const PutOptions& options = {}) = 0;

  // For diagnosis: calls `visit` for each entry of a kind, most recently used first, until it returns false. Entries
  // that come or go meanwhile may be left out. `visit` must not call the store. kUnimplemented: can't be listed.
  using Visitor = std::function<bool(const Digest& key, std::string_view label)>;
  virtual absl::Status ForEach(Kind kind, const Visitor& visit) = 0;

  // One element per tier, nearest first.
  virtual std::vector<StoreStats> Stats() const = 0;
};

}  // namespace stepone

#endif  // STEPONE_CACHE_STORE_H_
