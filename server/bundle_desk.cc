#include "server/bundle_desk.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "google/protobuf/util/message_differencer.h"
#include "proto/digest.h"
#include "proto/status.h"
#include "proto/str_cat.h"
#include "server/bundle_check.h"
#include "spdlog/spdlog.h"

namespace stepone::server {

using google::protobuf::util::MessageDifferencer;

BundleDesk::BundleDesk(const RequestLimits& limits, ArtifactDesk* artifacts, Store* store, const SigningKey* key,
                       Metrics* metrics)
    : limits_(limits), artifacts_(artifacts), key_(key), metrics_(metrics), bundles_(*store) {}

void BundleDesk::SetWorkers(const std::string& fingerprint, const Offer& offer) {
  fingerprint_ = fingerprint;
  offer_ = offer;
}

absl::StatusOr<KeyMaterial> BundleDesk::Check(const v1::TraceRequest& request) const {
  if (absl::Status status = CheckRequest(request, limits_, offer_); !status.ok()) return status;
  return TraceKey(request.trace(), request.target(), request.code_options(), fingerprint_, request.context().tenant());
}

absl::StatusOr<v1::Bundle> BundleDesk::Open(const CachedBundle& cached, const v1::TraceRequest& request,
                                            const KeyMaterial& material) const {
  // Whoever can write to the folder can't make us hand out what we did not sign.
  if (absl::Status ours = artifacts_->trusted().Verify(cached.bundle); !ours.ok()) return ours;
  v1::Bundle bundle;
  if (!bundle.ParseFromString(cached.bundle.bundle())) return absl::DataLossError("the bundle does not parse");
  if (bundle.format_version() != kBundleFormatVersion) return absl::NotFoundError("bundle of another version");
  if (bundle.trace_key() != material.key.Raw() || bundle.tenant() != request.context().tenant()) {
    return absl::DataLossError("the bundle is another one's");
  }
  return bundle;
}

absl::StatusOr<v1::FindBundleResponse> BundleDesk::Find(const v1::TraceRequest& request) {
  absl::StatusOr<KeyMaterial> material = Check(request);
  if (!material.ok()) return material.status();
  v1::FindBundleResponse response;
  response.set_trace_key(material->key.Raw());
  absl::StatusOr<CachedBundle> cached = bundles_.Get(*material);
  absl::StatusOr<v1::Bundle> bundle = cached.ok() ? Open(*cached, request, *material) : cached.status();
  if (!bundle.ok()) {
    if (!absl::IsNotFound(bundle.status())) {
      spdlog::warn("stored bundle {} is not used: {}", material->key.Hex(), bundle.status().ToString());
    }
    metrics_->bundles.Add("miss");
    return response;
  }
  const std::vector<std::string> known(request.known_objects().begin(), request.known_objects().end());
  v1::Source slowest = SourceOf(cached->tier);
  for (const v1::BundleGraph& graph : bundle->graphs()) {
    v1::Source source = v1::SOURCE_UNSPECIFIED;
    const std::optional<Digest> key = Digest::FromRaw(graph.graph_key());
    const auto artifact = key ? artifacts_->LookUp(*key, request.context().job(), source) : nullptr;
    if (artifact == nullptr) {
      metrics_->bundles.Add("incomplete");
      response.clear_artifacts();
      return response;
    }
    slowest = std::max(slowest, source);
    *response.add_artifacts() = artifacts_->Answer(*artifact, known);
  }
  metrics_->bundles.Add("hit");
  response.set_found(true);
  response.set_source(slowest);
  *response.mutable_bundle() = std::move(cached->bundle);
  return response;
}

absl::StatusOr<v1::Manifest> BundleDesk::Manifest(const v1::TraceRequest& request, const v1::BundleGraph& graph) {
  const std::string role = v1::Role_Name(graph.role());
  const std::optional<Digest> key = Digest::FromRaw(graph.graph_key());
  if (!key) return InvalidNode("", "digest", StrCat("graph key of ", role, " does not have 32 bytes"));
  const absl::StatusOr<v1::Artifact> artifact = artifacts_->Stored(*key);
  if (!artifact.ok() || artifact->signed_manifest().tenant() != request.context().tenant()) {
    return absl::FailedPreconditionError(StrCat("the artifact of ", role, " (", key->Hex(), ") is not here"));
  }
  v1::Manifest manifest;
  if (!manifest.ParseFromString(artifact->signed_manifest().manifest())) {
    return absl::DataLossError(StrCat("the manifest of ", role, " does not parse"));
  }
  // A trainer may have got it from the server that ran here before an update.
  if (manifest.compiler_fingerprint() != fingerprint_) {
    return absl::FailedPreconditionError(StrCat("the artifact of ", role, " (", key->Hex(),
                                                ") is of another compiler: ", manifest.compiler_fingerprint()));
  }
  if (manifest.role() != graph.role() || !MessageDifferencer::Equals(manifest.target(), request.target()) ||
      !MessageDifferencer::Equals(manifest.code_options(), request.code_options())) {
    return absl::FailedPreconditionError(
        StrCat("the artifact of ", role, " (", key->Hex(), ") was made for another role, target or other options"));
  }
  return manifest;
}

v1::SignedBundle BundleDesk::Sign(const v1::PutBundleRequest& request, const KeyMaterial& material) const {
  v1::Bundle bundle;
  bundle.set_format_version(kBundleFormatVersion);
  bundle.set_trace_key(material.key.Raw());
  bundle.set_trace_digest(Sha256(request.trace().trace()).Raw());
  bundle.set_tenant(request.trace().context().tenant());
  *bundle.mutable_convention() = request.convention();
  *bundle.mutable_graphs() = request.graphs();
  v1::SignedBundle made;
  made.set_bundle(bundle.SerializeAsString());
  made.set_created_unix_ms(absl::ToUnixMillis(absl::Now()));
  key_->Sign(made);
  return made;
}

absl::StatusOr<v1::PutBundleResponse> BundleDesk::Put(const v1::PutBundleRequest& request) {
  const auto refuse = [this](absl::Status status) {
    metrics_->bundles.Add("refused");
    return status;
  };
  if (request.ByteSizeLong() > limits_.max_request_bytes) {
    return refuse(
        InvalidNode("", "request-too-large",
                    StrCat("request of ", request.ByteSizeLong(), " bytes; the limit is ", limits_.max_request_bytes)));
  }
  absl::StatusOr<KeyMaterial> material = Check(request.trace());
  if (!material.ok()) return refuse(material.status());
  if (absl::Status status = CheckBundleRoles(request.convention(), request.graphs()); !status.ok()) {
    return refuse(status);
  }
  std::vector<v1::Manifest> manifests;
  for (const v1::BundleGraph& graph : request.graphs()) {
    absl::StatusOr<v1::Manifest> manifest = Manifest(request.trace(), graph);
    if (!manifest.ok()) return refuse(manifest.status());
    manifests.push_back(*std::move(manifest));
  }
  if (absl::Status status = CheckConvention(request.convention(), manifests, limits_); !status.ok()) {
    return refuse(status);
  }

  v1::PutBundleResponse response;
  response.set_trace_key(material->key.Raw());
  absl::Status status = bundles_.Put(*material, Sign(request, *material), /*overwrite=*/false);
  if (absl::IsAlreadyExists(status) && !Find(request.trace())->found()) {
    // What is there can't be used: it is damaged, of another version, or its artifacts are gone.
    status = bundles_.Put(*material, Sign(request, *material), /*overwrite=*/true);
  }
  if (!status.ok() && !absl::IsAlreadyExists(status)) return status;
  response.set_stored(status.ok());
  metrics_->bundles.Add(status.ok() ? "stored" : "known");
  return response;
}

absl::StatusOr<v1::ExplainResponse> BundleDesk::Explain(const v1::TraceRequest& request) {
  absl::StatusOr<KeyMaterial> material = Check(request);
  if (!material.ok()) return material.status();
  v1::ExplainResponse response;
  response.set_graph_key(material->key.Raw());
  if (bundles_.Get(*material).ok()) {
    response.set_found(true);
    response.set_nearest_key(material->key.Raw());
  } else if (absl::StatusOr<NearestKey> nearest = bundles_.Nearest(*material); nearest.ok()) {
    response.set_nearest_key(nearest->key.Raw());
    for (v1::FieldDifference& difference : nearest->differences) *response.add_differences() = std::move(difference);
  }
  return response;
}

}  // namespace stepone::server
