#include "cache/artifact_cache.h"

#include <zstd.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "proto/artifact_file.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

// An artifact entry: u64 bytes of the material, u64 bytes of the packed material, packed material (zstd), container.
constexpr size_t kHeadBytes = 16;
constexpr uint64_t kMaxMaterialBytes = uint64_t{1} << 30;
constexpr int kZstdLevel = 1;

struct View {
  uint64_t material_bytes = 0;
  std::string_view packed_material;
  std::string_view container;
};

void AppendSize(std::string& out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

uint64_t ReadSize(std::string_view bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

std::string EncodeEntry(const KeyMaterial& material, const v1::Artifact& artifact) {
  const std::string& canonical = material.canonical;
  std::string packed(ZSTD_compressBound(canonical.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), canonical.data(), canonical.size(), kZstdLevel));
  std::string entry;
  AppendSize(entry, canonical.size());
  AppendSize(entry, packed.size());
  entry += packed;
  entry += EncodeArtifactFile(artifact);
  return entry;
}

std::optional<View> SplitEntry(std::string_view bytes) {
  if (bytes.size() < kHeadBytes) return std::nullopt;
  View view;
  view.material_bytes = ReadSize(bytes);
  const uint64_t packed = ReadSize(bytes.substr(8));
  if (view.material_bytes > kMaxMaterialBytes || packed > bytes.size() - kHeadBytes) return std::nullopt;
  view.packed_material = bytes.substr(kHeadBytes, packed);
  view.container = bytes.substr(kHeadBytes + packed);
  return view;
}

std::optional<std::string> Material(const View& view) {
  std::string canonical(view.material_bytes, '\0');
  const size_t size =
      ZSTD_decompress(canonical.data(), canonical.size(), view.packed_material.data(), view.packed_material.size());
  if (ZSTD_isError(size) || size != canonical.size()) return std::nullopt;
  return canonical;
}

}  // namespace

absl::StatusOr<CachedArtifact> ArtifactCache::Get(const KeyMaterial& material) {
  auto entry = store_.Get({Kind::kArtifact, material.key});
  if (!entry.ok()) return entry.status();
  const auto view = SplitEntry(*entry->bytes);
  const auto stored = view ? Material(*view) : std::nullopt;
  if (!stored) return absl::DataLossError("an artifact's entry does not unpack");
  if (*stored != material.canonical) {
    material_mismatches_.fetch_add(1, std::memory_order_relaxed);
    return absl::NotFoundError("another request has the same key");
  }
  auto artifact = DecodeArtifactFile(view->container);
  if (!artifact.ok()) return artifact.status();
  return CachedArtifact{*std::move(artifact), entry->tier};
}

v1::Artifact ArtifactCache::PutOrGet(const KeyMaterial& material, v1::Artifact artifact, bool overwrite) {
  const Blob entry = MakeBlob(EncodeEntry(material, artifact));
  const EntryId id{Kind::kArtifact, material.key};
  PutOptions options{.overwrite = overwrite, .label = SketchKey(material.canonical)};
  absl::Status status = store_.Put(id, entry, options);
  if (absl::IsAlreadyExists(status)) {
    auto first = Get(material);
    if (first.ok()) return std::move(first->artifact);
    // What is there is damaged, has just been evicted, or belongs to another request with the same key.
    options.overwrite = absl::IsDataLoss(first.status());
    status = store_.Put(id, entry, options);
  }
  if (!status.ok()) not_kept_.fetch_add(1, std::memory_order_relaxed);
  return artifact;
}

absl::StatusOr<NearestKey> ArtifactCache::Nearest(const KeyMaterial& material) {
  const std::string sketch = SketchKey(material.canonical);
  int best = 0;
  NearestKey nearest;
  absl::Status status = store_.ForEach(Kind::kArtifact, [&](const Digest& key, std::string_view label) {
    const int similarity = SketchSimilarity(sketch, label);
    if (similarity > best && key != material.key) {
      best = similarity;
      nearest.key = key;
    }
    return true;
  });
  if (!status.ok()) return status;
  if (best == 0) return absl::NotFoundError("the tenant has no other entry");
  const auto entry = store_.Get({Kind::kArtifact, nearest.key});
  if (!entry.ok()) return entry.status();
  const auto view = SplitEntry(*entry->bytes);
  const auto stored = view ? Material(*view) : std::nullopt;
  if (!stored) return absl::DataLossError("the nearest entry does not unpack");
  nearest.differences = DiffKeys(material.canonical, *stored);
  return nearest;
}

}  // namespace stepone
