#include "server/artifact_desk.h"

#include <utility>

#include "server/artifact_builder.h"
#include "spdlog/spdlog.h"

namespace stepone::server {
namespace {

// As the metric of hits has it.
const char* TierLabel(Tier tier) {
  switch (tier) {
    case Tier::kMemory:
      return "memory";
    case Tier::kDisk:
      return "disk";
    case Tier::kFar:
      return "remote";
  }
  return "other";
}

}  // namespace

v1::Source SourceOf(Tier tier) {
  switch (tier) {
    case Tier::kMemory:
      return v1::SOURCE_MEMORY;
    case Tier::kDisk:
      return v1::SOURCE_DISK;
    case Tier::kFar:
      return v1::SOURCE_REMOTE;
  }
  return v1::SOURCE_UNSPECIFIED;
}

ArtifactDesk::ArtifactDesk(const Options& options, Store* store, const SigningKey* key, Metrics* metrics)
    : options_(options), store_(store), metrics_(metrics), cache_(*store), pins_(options.max_pin_bytes) {
  trusted_.Add(key->public_key()).IgnoreError();  // a key of ours has the right length
}

std::shared_ptr<const v1::Artifact> ArtifactDesk::FindPin(const std::string& job, const Digest& graph_key,
                                                          v1::Source& source) {
  if (job.empty()) return nullptr;
  absl::MutexLock lock(&mu_);
  auto pinned = pins_.Find(job, graph_key);
  if (pinned != nullptr) {
    metrics_->hits.Add("pin");
    source = v1::SOURCE_MEMORY;
  }
  return pinned;
}

std::shared_ptr<const v1::Artifact> ArtifactDesk::LookUp(const KeyMaterial& material, const std::string& job,
                                                         v1::Source& source) {
  if (auto pinned = FindPin(job, material.key, source); pinned != nullptr) return pinned;
  return Accept(cache_.Get(material), material.key, job, source);
}

std::shared_ptr<const v1::Artifact> ArtifactDesk::LookUp(const Digest& graph_key, const std::string& job,
                                                         v1::Source& source) {
  if (auto pinned = FindPin(job, graph_key, source); pinned != nullptr) return pinned;
  return Accept(cache_.GetByKey(graph_key), graph_key, job, source);
}

std::shared_ptr<const v1::Artifact> ArtifactDesk::Accept(absl::StatusOr<CachedArtifact> cached, const Digest& graph_key,
                                                         const std::string& job, v1::Source& source) {
  const absl::Status status = cached.ok() ? CheckOurs(cached->artifact, graph_key) : cached.status();
  if (!status.ok()) {
    if (!absl::IsNotFound(status)) {
      spdlog::warn("stored artifact {} is not used: {}", graph_key.Hex(), status.ToString());
    }
    return nullptr;
  }
  source = SourceOf(cached->tier);
  metrics_->hits.Add(TierLabel(cached->tier));
  auto artifact = std::make_shared<const v1::Artifact>(std::move(cached->artifact));
  if (!job.empty()) Pin(job, graph_key, artifact);
  return artifact;
}

absl::StatusOr<v1::Artifact> ArtifactDesk::Stored(const Digest& graph_key) {
  absl::StatusOr<CachedArtifact> cached = cache_.GetByKey(graph_key);
  if (!cached.ok()) return cached.status();
  if (absl::Status status = CheckOurs(cached->artifact, graph_key); !status.ok()) return status;
  return std::move(cached->artifact);
}

// Whoever can write to the folder can't make us hand out what we did not sign. Memory is no proof: reads fill it.
absl::Status ArtifactDesk::CheckOurs(const v1::Artifact& artifact, const Digest& graph_key) const {
  if (artifact.signed_manifest().graph_key() != graph_key.Raw()) {
    return absl::DataLossError("the artifact is another one's");
  }
  return trusted_.Verify(artifact.signed_manifest());
}

void ArtifactDesk::Pin(const std::string& job, const Digest& graph_key, std::shared_ptr<const v1::Artifact> artifact) {
  absl::MutexLock lock(&mu_);
  pins_.Pin(job, graph_key, std::move(artifact));
}

v1::Artifact ArtifactDesk::Answer(const v1::Artifact& artifact, const std::vector<std::string>& known_objects) {
  std::vector<const v1::ObjectBytes*> left_out;
  v1::Artifact answer = ForClient(artifact, known_objects, options_.inline_object_bytes, left_out);
  for (const v1::ObjectBytes* object : left_out) {
    const EntryId id{Kind::kObject, *Digest::FromRaw(object->digest())};
    if (store_->Find(id).ok()) continue;
    absl::Status kept = store_->Put(id, MakeBlob(object->data()));
    // What can't be kept could not be fetched: send it now.
    if (!kept.ok() && !absl::IsAlreadyExists(kept)) *answer.add_objects() = *object;
  }
  return answer;
}

}  // namespace stepone::server
