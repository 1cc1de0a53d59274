#include "cache/keyed_entry.h"

#include <zstd.h>

#include <cstdint>
#include <utility>

namespace stepone {
namespace {

constexpr size_t kHeadBytes = 16;
constexpr uint64_t kMaxMaterialBytes = uint64_t{1} << 30;
constexpr int kZstdLevel = 1;

void AppendSize(std::string& out, uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

uint64_t ReadSize(std::string_view bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}

}  // namespace

std::string EncodeKeyedEntry(std::string_view material, std::string_view body) {
  std::string packed(ZSTD_compressBound(material.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), material.data(), material.size(), kZstdLevel));
  std::string entry;
  entry.reserve(kHeadBytes + packed.size() + body.size());
  AppendSize(entry, material.size());
  AppendSize(entry, packed.size());
  entry += packed;
  entry += body;
  return entry;
}

absl::StatusOr<KeyedEntry> DecodeKeyedEntry(std::string_view bytes) {
  const absl::Status damaged = absl::DataLossError("an entry does not unpack");
  if (bytes.size() < kHeadBytes) return damaged;
  const uint64_t material = ReadSize(bytes);
  const uint64_t packed = ReadSize(bytes.substr(8));
  if (material > kMaxMaterialBytes || packed > bytes.size() - kHeadBytes) return damaged;
  KeyedEntry entry;
  entry.material.resize(material);
  const size_t size = ZSTD_decompress(entry.material.data(), entry.material.size(), bytes.data() + kHeadBytes, packed);
  if (ZSTD_isError(size) || size != material) return damaged;
  entry.body = bytes.substr(kHeadBytes + packed);
  return entry;
}

absl::StatusOr<NearestKey> FindNearest(Store& store, Kind kind, const KeyMaterial& material) {
  const std::string sketch = SketchKey(material.canonical);
  int best = 0;
  NearestKey nearest;
  absl::Status status = store.ForEach(kind, [&](const Digest& key, std::string_view label) {
    const int similarity = SketchSimilarity(sketch, label);
    if (similarity > best && key != material.key) {
      best = similarity;
      nearest.key = key;
    }
    return true;
  });
  if (!status.ok()) return status;
  if (best == 0) return absl::NotFoundError("the tenant has no other entry");
  const auto bytes = store.Get({kind, nearest.key});
  if (!bytes.ok()) return bytes.status();
  const auto entry = DecodeKeyedEntry(*bytes->bytes);
  if (!entry.ok()) return entry.status();
  nearest.differences = DiffKeys(material.canonical, entry->material);
  return nearest;
}

}  // namespace stepone
