#include "proto/artifact_file.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "proto/digest.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

// Offsets of the head; see ARTIFACT_FORMAT.md.
constexpr std::string_view kMagic("\x89ST1\r\n\x1a\n", 8);
constexpr uint32_t kVersion = 1;
constexpr size_t kVersionAt = 8;
constexpr size_t kObjectCountAt = 12;
constexpr size_t kTotalBytesAt = 16;
constexpr size_t kEnvelopeBytesAt = 24;
constexpr size_t kChecksumAt = 32;
constexpr size_t kHeadBytes = kChecksumAt + Digest::kSize;
constexpr size_t kRowBytes = Digest::kSize + sizeof(uint64_t);

using ObjectMap = std::unordered_map<std::string_view, std::string_view>;

template <typename T>
void AppendInteger(std::string& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
}

template <typename T>
T ReadInteger(std::string_view bytes, size_t offset) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<uint8_t>(bytes[offset + i])) << (8 * i);
  return value;
}

void Require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "stepone: EncodeArtifactFile: %s\n", what);
  std::abort();
}

absl::Status Damaged(std::string_view what) { return absl::DataLossError(StrCat("artifact file: ", what)); }

// Covers the head before the checksum, the object table and the envelope; objects are covered by their own digests.
Digest Checksum(std::string_view head, std::string_view table_and_envelope) {
  Hasher hasher;
  hasher.Update(head.substr(0, kChecksumAt));
  hasher.Update(table_and_envelope);
  return hasher.Finish();
}

// The manifest names exactly the objects that are there, with their sizes.
absl::Status CheckManifest(const v1::Artifact& artifact) {
  v1::Manifest manifest;
  if (!manifest.ParseFromString(artifact.signed_manifest().manifest())) return Damaged("the manifest does not parse");
  std::unordered_map<std::string_view, uint64_t> present;
  for (const v1::ObjectBytes& object : artifact.objects()) present.emplace(object.digest(), object.data().size());
  std::unordered_set<std::string_view> named;
  for (const v1::ObjectRef& ref : manifest.objects()) {
    const auto found = present.find(ref.digest());
    if (found == present.end()) return Damaged("an object of the manifest is missing");
    if (found->second != ref.size_bytes()) return Damaged("an object's size differs from the manifest's");
    named.insert(ref.digest());
  }
  if (named.size() != present.size()) return Damaged("it holds an object that the manifest does not name");
  return absl::OkStatus();
}

absl::Status CheckHead(std::string_view bytes) {
  if (bytes.size() < kHeadBytes) return Damaged(StrCat("cut short: ", bytes.size(), " bytes hold no head"));
  if (bytes.substr(0, kMagic.size()) != kMagic) return Damaged("wrong magic bytes");
  const uint32_t version = ReadInteger<uint32_t>(bytes, kVersionAt);
  if (version != kVersion) return Damaged(StrCat("version ", version, " is not known"));
  const uint64_t total = ReadInteger<uint64_t>(bytes, kTotalBytesAt);
  if (total != bytes.size()) return Damaged(StrCat("has ", bytes.size(), " bytes instead of ", total));
  const uint64_t rest = bytes.size() - kHeadBytes;
  const uint64_t table = uint64_t{ReadInteger<uint32_t>(bytes, kObjectCountAt)} * kRowBytes;
  if (table > rest) return Damaged("the object table leaves the file");
  const uint64_t envelope = ReadInteger<uint64_t>(bytes, kEnvelopeBytesAt);
  if (envelope > rest - table) return Damaged("the signed manifest leaves the file");
  const std::string_view covered = bytes.substr(kHeadBytes, table + envelope);
  if (Checksum(bytes, covered).Raw() != bytes.substr(kChecksumAt, Digest::kSize)) {
    return Damaged("checksum of head, object table and manifest is wrong");
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeArtifactFile(const v1::Artifact& artifact) {
  v1::Manifest manifest;
  Require(manifest.ParseFromString(artifact.signed_manifest().manifest()), "the manifest does not parse");
  ObjectMap by_digest;
  for (const v1::ObjectBytes& object : artifact.objects()) by_digest.emplace(object.digest(), object.data());

  std::vector<std::pair<std::string_view, std::string_view>> objects;
  std::unordered_set<std::string_view> seen;
  size_t object_bytes = 0;
  for (const v1::ObjectRef& ref : manifest.objects()) {
    if (!seen.insert(ref.digest()).second) continue;
    const auto found = by_digest.find(ref.digest());
    Require(found != by_digest.end(), "an object of the manifest is missing");
    Require(ref.digest().size() == Digest::kSize, "a digest does not have 32 bytes");
    objects.push_back(*found);
    object_bytes += found->second.size();
  }

  const std::string envelope = artifact.signed_manifest().SerializeAsString();
  const size_t total = kHeadBytes + objects.size() * kRowBytes + envelope.size() + object_bytes;
  std::string out(kMagic);
  out.reserve(total);
  AppendInteger<uint32_t>(out, kVersion);
  AppendInteger<uint32_t>(out, static_cast<uint32_t>(objects.size()));
  AppendInteger<uint64_t>(out, total);
  AppendInteger<uint64_t>(out, envelope.size());
  out.append(Digest::kSize, '\0');
  for (const auto& [digest, data] : objects) {
    out.append(digest);
    AppendInteger<uint64_t>(out, data.size());
  }
  out.append(envelope);
  const Digest checksum = Checksum(out, std::string_view(out).substr(kHeadBytes));
  std::memcpy(out.data() + kChecksumAt, checksum.bytes.data(), Digest::kSize);
  for (const auto& [digest, data] : objects) out.append(data);
  return out;
}

absl::StatusOr<v1::Artifact> DecodeArtifactFile(std::string_view bytes) {
  if (absl::Status status = CheckHead(bytes); !status.ok()) return status;
  const size_t count = ReadInteger<uint32_t>(bytes, kObjectCountAt);
  const size_t envelope_bytes = ReadInteger<uint64_t>(bytes, kEnvelopeBytesAt);
  const std::string_view table = bytes.substr(kHeadBytes, count * kRowBytes);
  const std::string_view envelope = bytes.substr(kHeadBytes + table.size(), envelope_bytes);
  std::string_view rest = bytes.substr(kHeadBytes + table.size() + envelope.size());

  v1::Artifact artifact;
  if (!artifact.mutable_signed_manifest()->ParseFromString(std::string(envelope))) {
    return Damaged("the signed manifest does not parse");
  }
  for (size_t i = 0; i < count; ++i) {
    const std::string_view digest = table.substr(i * kRowBytes, Digest::kSize);
    const uint64_t size = ReadInteger<uint64_t>(table, i * kRowBytes + Digest::kSize);
    if (size > rest.size()) return Damaged(StrCat("object ", i, " leaves the file"));
    const std::string_view data = rest.substr(0, size);
    if (Sha256(data).Raw() != digest) return Damaged(StrCat("bytes of object ", i, " do not match its digest"));
    v1::ObjectBytes* object = artifact.add_objects();
    object->set_digest(std::string(digest));
    object->set_data(std::string(data));
    rest.remove_prefix(size);
  }
  if (!rest.empty()) return Damaged("bytes follow the last object");
  if (absl::Status status = CheckManifest(artifact); !status.ok()) return status;
  return artifact;
}

}  // namespace stepone
