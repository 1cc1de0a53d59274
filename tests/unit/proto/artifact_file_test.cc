#include "proto/artifact_file.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "proto/digest.h"

namespace stepone {
namespace {

constexpr size_t kHeadBytes = 64;
constexpr size_t kRowBytes = 40;

v1::Artifact SomeArtifact() {
  v1::Artifact artifact;
  v1::Manifest manifest;
  manifest.set_format_version(1);
  manifest.set_graph_key(Sha256("graph").Raw());
  for (const std::string& data : {std::string(300, 'a'), std::string("\0second", 7), std::string()}) {
    v1::ObjectRef* ref = manifest.add_objects();
    ref->set_digest(Sha256(data).Raw());
    ref->set_size_bytes(data.size());
    ref->set_format("elf-so");
    v1::ObjectBytes* object = artifact.add_objects();
    object->set_digest(ref->digest());
    object->set_data(data);
  }
  v1::SignedManifest* envelope = artifact.mutable_signed_manifest();
  envelope->set_manifest(manifest.SerializeAsString());
  envelope->set_graph_key(manifest.graph_key());
  envelope->set_tenant("team-a");
  envelope->set_created_unix_ms(1790000000000);
  return artifact;
}

// Rewrites the checksum, for damage that a checksum does not show.
std::string WithChecksum(std::string file, size_t covered) {
  Hasher hasher;
  hasher.Update(std::string_view(file).substr(0, 32));
  hasher.Update(std::string_view(file).substr(kHeadBytes, covered));
  file.replace(32, 32, hasher.Finish().Raw());
  return file;
}

void ExpectDamaged(const std::string& file, std::string_view text) {
  const auto result = DecodeArtifactFile(file);
  ASSERT_EQ(result.status().code(), absl::StatusCode::kDataLoss) << text;
  EXPECT_NE(std::string(result.status().message()).find(text), std::string::npos) << result.status();
}

TEST(ArtifactFileTest, RoundTrip) {
  const v1::Artifact artifact = SomeArtifact();
  const auto decoded = DecodeArtifactFile(EncodeArtifactFile(artifact));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->SerializeAsString(), artifact.SerializeAsString());
}

TEST(ArtifactFileTest, OrderAndRepetitionOfObjectsDoNotMatter) {
  v1::Artifact artifact = SomeArtifact();
  const std::string file = EncodeArtifactFile(artifact);
  artifact.mutable_objects()->SwapElements(0, 2);
  *artifact.add_objects() = artifact.objects(1);
  EXPECT_EQ(EncodeArtifactFile(artifact), file);
}

TEST(ArtifactFileTest, TwoReferencesToOneObject) {
  v1::Artifact artifact = SomeArtifact();
  v1::Manifest manifest;
  ASSERT_TRUE(manifest.ParseFromString(artifact.signed_manifest().manifest()));
  *manifest.add_objects() = manifest.objects(0);
  artifact.mutable_signed_manifest()->set_manifest(manifest.SerializeAsString());
  const auto decoded = DecodeArtifactFile(EncodeArtifactFile(artifact));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->objects_size(), 3);
}

TEST(ArtifactFileTest, NoObjects) {
  v1::Artifact artifact;
  const auto decoded = DecodeArtifactFile(EncodeArtifactFile(artifact));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->objects_size(), 0);
}

TEST(ArtifactFileTest, HeadIsAsDocumented) {
  const v1::Artifact artifact = SomeArtifact();
  const std::string file = EncodeArtifactFile(artifact);
  const size_t envelope = artifact.signed_manifest().SerializeAsString().size();
  EXPECT_EQ(file.substr(0, 8), std::string("\x89ST1\r\n\x1a\n", 8));
  EXPECT_EQ(file.substr(8, 8), std::string("\x01\0\0\0\x03\0\0\0", 8));
  EXPECT_EQ(static_cast<uint8_t>(file[24]) + 256 * static_cast<uint8_t>(file[25]), static_cast<int>(envelope));
  EXPECT_EQ(file.size(), kHeadBytes + 3 * kRowBytes + envelope + 307);
  EXPECT_EQ(file.substr(kHeadBytes, 32), Sha256(std::string(300, 'a')).Raw());
  EXPECT_EQ(file.substr(kHeadBytes + 32, 8), std::string("\x2c\x01\0\0\0\0\0\0", 8));
}

TEST(ArtifactFileTest, EveryFlippedBitIsFound) {
  const std::string good = EncodeArtifactFile(SomeArtifact());
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] ^= static_cast<char>(1 << bit);
      ASSERT_EQ(DecodeArtifactFile(bad).status().code(), absl::StatusCode::kDataLoss) << "byte " << i << " bit " << bit;
    }
  }
}

TEST(ArtifactFileTest, EveryTruncationIsFound) {
  const std::string good = EncodeArtifactFile(SomeArtifact());
  for (size_t size = 0; size < good.size(); ++size) {
    ASSERT_EQ(DecodeArtifactFile(std::string_view(good).substr(0, size)).status().code(), absl::StatusCode::kDataLoss)
        << size;
  }
  ExpectDamaged(good + '\0', "bytes instead of");
}

TEST(ArtifactFileTest, DamageIsNamedFieldByField) {
  const v1::Artifact artifact = SomeArtifact();
  const std::string good = EncodeArtifactFile(artifact);
  const size_t envelope = artifact.signed_manifest().SerializeAsString().size();
  const size_t covered = 3 * kRowBytes + envelope;
  const auto with = [&good](size_t offset, char value) {
    std::string bad = good;
    bad[offset] = value;
    return bad;
  };
  ExpectDamaged("", "cut short");
  ExpectDamaged(with(0, 'P'), "magic");
  ExpectDamaged(with(8, 2), "version 2 is not known");
  ExpectDamaged(with(16, static_cast<char>(good[16] + 1)), "bytes instead of");
  ExpectDamaged(with(15, 0x7F), "object table leaves the file");
  ExpectDamaged(with(31, 0x7F), "signed manifest leaves the file");
  ExpectDamaged(with(40, static_cast<char>(good[40] + 1)), "checksum");
  ExpectDamaged(with(kHeadBytes, static_cast<char>(good[kHeadBytes] + 1)), "checksum");
  ExpectDamaged(with(kHeadBytes + covered, 'b'), "object 0 do not match");
  // The same with a checksum made to fit: each check stands on its own.
  ExpectDamaged(WithChecksum(with(kHeadBytes, static_cast<char>(good[kHeadBytes] + 1)), covered),
                "object 0 do not match");
  ExpectDamaged(WithChecksum(with(kHeadBytes + 39, 0x7F), covered), "object 0 leaves the file");
  ExpectDamaged(WithChecksum(with(kHeadBytes + 3 * kRowBytes, '\xFF'), covered), "signed manifest does not parse");
}

TEST(ArtifactFileTest, ObjectsMustBeThoseOfTheManifest) {
  const v1::Artifact artifact = SomeArtifact();
  v1::Manifest manifest;
  ASSERT_TRUE(manifest.ParseFromString(artifact.signed_manifest().manifest()));

  // A file whose table lacks the last object although the manifest names it: take the row out by hand.
  std::string file = EncodeArtifactFile(artifact);
  const size_t envelope = artifact.signed_manifest().SerializeAsString().size();
  file.erase(kHeadBytes + 2 * kRowBytes, kRowBytes);  // the last object is empty, so it has no bytes to take out
  file[12] = 2;
  const uint64_t total = file.size();
  for (int i = 0; i < 8; ++i) file[16 + i] = static_cast<char>((total >> (8 * i)) & 0xFF);
  ExpectDamaged(WithChecksum(file, 2 * kRowBytes + envelope), "an object of the manifest is missing");

  v1::Artifact wrong_size = artifact;
  manifest.mutable_objects(0)->set_size_bytes(299);
  wrong_size.mutable_signed_manifest()->set_manifest(manifest.SerializeAsString());
  ExpectDamaged(EncodeArtifactFile(wrong_size), "size differs");
}

TEST(ArtifactFileDeathTest, EncodingAnIncompleteArtifactStops) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  v1::Artifact artifact = SomeArtifact();
  artifact.mutable_objects()->RemoveLast();
  EXPECT_DEATH(EncodeArtifactFile(artifact), "an object of the manifest is missing");
}

}  // namespace
}  // namespace stepone
