// Hands out stored artifacts: what a job was given before, then the stores, checked as ours.
#ifndef STEPONE_SERVER_ARTIFACT_DESK_H_
#define STEPONE_SERVER_ARTIFACT_DESK_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cache/artifact_cache.h"
#include "cache/store.h"
#include "proto/signing.h"
#include "server/job_pins.h"
#include "server/metrics.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::server {

// Thread-safe. Look-ups and answers may read and write the stores, so they are no work for gRPC's threads.
class ArtifactDesk {
 public:
  struct Options {
    size_t inline_object_bytes = 1u << 20;  // objects sent with the answer; the others are fetched
    size_t max_pin_bytes = 64u << 20;
  };

  // All must outlive the desk.
  ArtifactDesk(const Options& options, Store* store, const SigningKey* key, Metrics* metrics);

  // Null when there is none that may be used; `source` says where it came from. Pins what is found for `job`, unless
  // that is empty.
  std::shared_ptr<const v1::Artifact> LookUp(const KeyMaterial& material, const std::string& job, v1::Source& source);
  // The same for a key that we signed ourselves.
  std::shared_ptr<const v1::Artifact> LookUp(const Digest& graph_key, const std::string& job, v1::Source& source);

  // What the stores hold under a key that somebody names, checked as ours; neither counted nor pinned.
  absl::StatusOr<v1::Artifact> Stored(const Digest& graph_key);

  // From now on `job` gets this artifact for the key.
  void Pin(const std::string& job, const Digest& graph_key, std::shared_ptr<const v1::Artifact> artifact);

  // What one client gets: objects that it does not know and that fit inline. The others are in the store afterwards.
  v1::Artifact Answer(const v1::Artifact& artifact, const std::vector<std::string>& known_objects);

  ArtifactCache& cache() { return cache_; }
  const TrustedKeys& trusted() const { return trusted_; }

 private:
  std::shared_ptr<const v1::Artifact> FindPin(const std::string& job, const Digest& graph_key, v1::Source& source);
  std::shared_ptr<const v1::Artifact> Accept(absl::StatusOr<CachedArtifact> cached, const Digest& graph_key,
                                             const std::string& job, v1::Source& source);
  // OK, or why an entry of the stores is not to be used.
  absl::Status CheckOurs(const v1::Artifact& artifact, const Digest& graph_key) const;

  const Options options_;
  Store* const store_;
  Metrics* const metrics_;
  ArtifactCache cache_;
  TrustedKeys trusted_;  // our own key: a stored artifact by anybody else is not ours

  absl::Mutex mu_;  // nothing else is taken under it
  JobPins pins_ ABSL_GUARDED_BY(mu_);
};

// Which tier an answer came from, for the client.
v1::Source SourceOf(Tier tier);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_ARTIFACT_DESK_H_
