// A stored value together with the whole material of its key, so that whoever finds it by key can compare.
#ifndef STEPONE_CACHE_KEYED_ENTRY_H_
#define STEPONE_CACHE_KEYED_ENTRY_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "cache/cache_key.h"
#include "cache/store.h"

namespace stepone {

// Bytes of an entry: u64 size of the material, u64 size of the packed material (zstd), packed material, body.
std::string EncodeKeyedEntry(std::string_view material, std::string_view body);

struct KeyedEntry {
  std::string material;
  std::string_view body;  // into the bytes that were read
};

// kDataLoss when `bytes` are no keyed entry.
absl::StatusOr<KeyedEntry> DecodeKeyedEntry(std::string_view bytes);

// The nearest stored key to a request that missed.
struct NearestKey {
  Digest key;
  std::vector<v1::FieldDifference> differences;
};

// Among the keyed entries of `kind`, by the sketches in their labels. kNotFound when the tenant has no other entry.
absl::StatusOr<NearestKey> FindNearest(Store& store, Kind kind, const KeyMaterial& material);

}  // namespace stepone

#endif  // STEPONE_CACHE_KEYED_ENTRY_H_
