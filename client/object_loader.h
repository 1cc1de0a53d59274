// Maps native objects into the process, each one once.
#ifndef STEPONE_CLIENT_OBJECT_LOADER_H_
#define STEPONE_CLIENT_OBJECT_LOADER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/digest.h"

namespace stepone::client {

// A mapped shared library. Unmapped when the last holder lets go. Thread-safe.
class MappedObject {
 public:
  // Takes over a handle of dlopen().
  MappedObject(const Digest& digest, void* handle) : digest_(digest), handle_(handle) {}
  MappedObject(const MappedObject&) = delete;
  MappedObject& operator=(const MappedObject&) = delete;
  ~MappedObject();

  const Digest& digest() const { return digest_; }
  // kDataLoss when the object does not export `symbol`.
  absl::StatusOr<void*> Symbol(const std::string& symbol) const;

 private:
  const Digest digest_;
  void* const handle_;
};

// The process's mapped objects by digest: artifacts that share a kernel share its mapping. Thread-safe.
class ObjectLoader {
 public:
  static ObjectLoader& Global();

  // The object if some artifact of this process has it mapped; null otherwise.
  std::shared_ptr<MappedObject> Find(const Digest& digest);

  // All objects that are mapped now. Holding the result keeps them mapped.
  std::vector<std::shared_ptr<MappedObject>> Mapped();

  // Maps `bytes` (a shared library without dependencies) out of anonymous memory; no file is written. kDataLoss when
  // the digest is wrong or the bytes are not a library that can be loaded here.
  absl::StatusOr<std::shared_ptr<MappedObject>> Load(const Digest& digest, std::string_view bytes);

  struct Counters {
    int64_t mapped = 0;  // loads that made a mapping
    int64_t shared = 0;  // loads and finds that were served by an existing one
  };
  Counters counters() const;

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<Digest, std::weak_ptr<MappedObject>> objects_ ABSL_GUARDED_BY(mutex_);
  Counters counters_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_OBJECT_LOADER_H_
