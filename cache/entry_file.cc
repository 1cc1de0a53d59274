#include "cache/entry_file.h"

#include <zstd.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "proto/str_cat.h"

namespace stepone {
namespace {

constexpr std::string_view kMagic = "ST1ENTRY";
constexpr uint32_t kVersion = 1;
constexpr size_t kVersionAt = 8;
constexpr size_t kKindAt = 12;
constexpr size_t kCodecAt = 13;
constexpr size_t kLabelBytesAt = 14;
constexpr size_t kContentBytesAt = 16;
constexpr size_t kStoredBytesAt = 24;
constexpr size_t kKeyAt = 32;
constexpr size_t kChecksumAt = 64;
constexpr size_t kHeadBytes = 96;

constexpr char kAsItIs = 0;
constexpr char kZstd = 1;
constexpr int kZstdLevel = 1;
// Below this, the head is most of the file whatever is done.
constexpr size_t kCompressFrom = 512;
// What can be unpacked without asking whether the host has the memory; no entry comes near.
constexpr uint64_t kMaxContentBytes = uint64_t{4} << 30;

template <typename T>
void StoreInteger(std::string& out, size_t offset, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out[offset + i] = static_cast<char>(value >> (8 * i));
}

template <typename T>
T LoadInteger(std::string_view bytes, size_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<uint8_t>(bytes[offset + i])) << (8 * i);
  return value;
}

// Empty when compressing does not save at least an eighth.
std::string Compressed(std::string_view content) {
  if (content.size() < kCompressFrom) return {};
  std::string packed(ZSTD_compressBound(content.size()), '\0');
  const size_t size = ZSTD_compress(packed.data(), packed.size(), content.data(), content.size(), kZstdLevel);
  if (ZSTD_isError(size) || size > content.size() - content.size() / 8) return {};
  packed.resize(size);
  return packed;
}

Digest Checksum(std::string_view file) {
  Hasher hasher;
  hasher.Update(file.substr(0, kChecksumAt));
  hasher.Update(file.substr(kHeadBytes));
  return hasher.Finish();
}

absl::Status Damaged(std::string_view what) { return absl::DataLossError(StrCat("entry file: ", what)); }

absl::StatusOr<std::string> Unpacked(char codec, std::string_view stored, uint64_t content_bytes) {
  if (codec == kAsItIs) {
    if (stored.size() != content_bytes) return Damaged("content has the wrong size");
    return std::string(stored);
  }
  if (codec != kZstd) return Damaged("unknown codec");
  if (content_bytes > kMaxContentBytes) return Damaged("content is too large");
  std::string content(content_bytes, '\0');
  const size_t size = ZSTD_decompress(content.data(), content.size(), stored.data(), stored.size());
  if (ZSTD_isError(size) || size != content_bytes) return Damaged("content does not unpack");
  return content;
}

}  // namespace

std::string EncodeEntryFile(const EntryId& id, std::string_view label, std::string_view content) {
  const std::string packed = Compressed(content);
  const std::string_view stored = packed.empty() ? content : std::string_view(packed);
  std::string file(kHeadBytes, '\0');
  file.reserve(kHeadBytes + label.size() + stored.size());
  file.replace(0, kMagic.size(), kMagic);
  StoreInteger<uint32_t>(file, kVersionAt, kVersion);
  file[kKindAt] = static_cast<char>(id.kind);
  file[kCodecAt] = packed.empty() ? kAsItIs : kZstd;
  StoreInteger<uint16_t>(file, kLabelBytesAt, static_cast<uint16_t>(label.size()));
  StoreInteger<uint64_t>(file, kContentBytesAt, content.size());
  StoreInteger<uint64_t>(file, kStoredBytesAt, stored.size());
  std::memcpy(file.data() + kKeyAt, id.key.bytes.data(), Digest::kSize);
  file.append(label);
  file.append(stored);
  const Digest checksum = Checksum(file);
  std::memcpy(file.data() + kChecksumAt, checksum.bytes.data(), Digest::kSize);
  return file;
}

absl::StatusOr<EntryHead> PeekEntryFile(const EntryId& expected, std::string_view prefix, uint64_t file_bytes) {
  if (prefix.size() < kHeadBytes) return Damaged("cut short");
  if (prefix.substr(0, kMagic.size()) != kMagic) return Damaged("wrong magic bytes");
  if (LoadInteger<uint32_t>(prefix, kVersionAt) != kVersion) return Damaged("unknown version");
  const size_t label_bytes = LoadInteger<uint16_t>(prefix, kLabelBytesAt);
  const uint64_t stored_bytes = LoadInteger<uint64_t>(prefix, kStoredBytesAt);
  if (label_bytes > kMaxLabelBytes || label_bytes > prefix.size() - kHeadBytes ||
      stored_bytes != file_bytes - kHeadBytes - label_bytes) {
    return Damaged("wrong length");
  }
  const EntryId id{static_cast<Kind>(prefix[kKindAt]), *Digest::FromRaw(prefix.substr(kKeyAt, Digest::kSize))};
  if (id != expected) return Damaged("it belongs to another key");
  return EntryHead{std::string(prefix.substr(kHeadBytes, label_bytes)), LoadInteger<uint64_t>(prefix, kContentBytesAt)};
}

absl::StatusOr<EntryFile> DecodeEntryFile(const EntryId& expected, std::string_view bytes) {
  auto head = PeekEntryFile(expected, bytes, bytes.size());
  if (!head.ok()) return head.status();
  if (Checksum(bytes).Raw() != bytes.substr(kChecksumAt, Digest::kSize)) return Damaged("wrong checksum");
  EntryFile entry;
  entry.id = expected;
  entry.label = std::move(head->label);
  auto content = Unpacked(bytes[kCodecAt], bytes.substr(kHeadBytes + entry.label.size()), head->content_bytes);
  if (!content.ok()) return content.status();
  entry.content = *std::move(content);
  return entry;
}

}  // namespace stepone
