#include "proto/signing.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "proto/digest.h"

namespace stepone {
namespace {

v1::SignedManifest SomeManifest() {
  v1::Manifest manifest;
  manifest.set_format_version(1);
  manifest.set_arena_bytes(4096);
  v1::SignedManifest result;
  result.set_manifest(manifest.SerializeAsString());
  result.set_graph_key(Sha256("graph").Raw());
  result.set_tenant("team-a");
  result.set_created_unix_ms(1790000000000);
  return result;
}

TrustedKeys Trusting(const SigningKey& key) {
  TrustedKeys keys;
  EXPECT_TRUE(keys.Add(key.public_key()).ok());
  return keys;
}

class KeyFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/signing_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/key.pem";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::string path_;
};

TEST(SigningTest, GoodSignatureVerifies) {
  const SigningKey key = SigningKey::Generate();
  v1::SignedManifest manifest = SomeManifest();
  key.Sign(manifest);
  ASSERT_EQ(manifest.signatures_size(), 1);
  EXPECT_EQ(manifest.signatures(0).signer(), key.key_id());
  EXPECT_EQ(manifest.signatures(0).ed25519().size(), 64u);
  EXPECT_TRUE(Trusting(key).Verify(manifest).ok());
}

TEST(SigningTest, NothingSignedCanBeChanged) {
  const SigningKey key = SigningKey::Generate();
  const TrustedKeys trusted = Trusting(key);
  v1::SignedManifest good = SomeManifest();
  key.Sign(good);

  v1::SignedManifest changed = good;
  changed.set_graph_key(Sha256("another graph").Raw());
  EXPECT_EQ(trusted.Verify(changed).code(), absl::StatusCode::kPermissionDenied) << "replay under another key";
  changed = good;
  changed.set_tenant("team-b");
  EXPECT_EQ(trusted.Verify(changed).code(), absl::StatusCode::kPermissionDenied) << "replay for another tenant";
  changed = good;
  changed.set_created_unix_ms(good.created_unix_ms() + 1);
  EXPECT_EQ(trusted.Verify(changed).code(), absl::StatusCode::kPermissionDenied);
  for (size_t i = 0; i < good.manifest().size(); ++i) {
    changed = good;
    (*changed.mutable_manifest())[i] ^= 1;
    EXPECT_FALSE(trusted.Verify(changed).ok()) << "manifest byte " << i;
  }
  for (size_t i = 0; i < 64; ++i) {
    changed = good;
    (*changed.mutable_signatures(0)->mutable_ed25519())[i] ^= 0x10;
    EXPECT_FALSE(trusted.Verify(changed).ok()) << "signature byte " << i;
  }
  changed = good;
  changed.mutable_signatures(0)->mutable_ed25519()->pop_back();
  EXPECT_FALSE(trusted.Verify(changed).ok());
}

TEST(SigningTest, FieldsCannotTradeBytes) {
  v1::SignedManifest a = SomeManifest();
  a.set_graph_key("ab");
  a.set_tenant("c");
  v1::SignedManifest b = a;
  b.set_graph_key("a");
  b.set_tenant("bc");
  EXPECT_NE(SignedPayload(a), SignedPayload(b));
}

TEST(SigningTest, PayloadIsAsDocumented) {
  v1::SignedManifest manifest;
  manifest.set_manifest("m");
  manifest.set_graph_key("key");
  manifest.set_tenant("t");
  manifest.set_created_unix_ms(0x0102);
  std::string expected("\x01\x03\0\0\0key\x01\0\0\0t\x20\0\0\0", 17);
  expected += Sha256("m").Raw();
  expected += std::string("\x08\0\0\0\x02\x01\0\0\0\0\0\0", 12);
  EXPECT_EQ(SignedPayload(manifest), expected);
}

TEST(SigningTest, BundlesAreSignedLikewiseAndApartFromManifests) {
  const SigningKey key = SigningKey::Generate();
  TrustedKeys trusted;
  ASSERT_TRUE(trusted.Add(key.public_key()).ok());
  v1::SignedBundle bundle;
  bundle.set_bundle("bundle");
  bundle.set_created_unix_ms(0x0102030405060708);
  EXPECT_TRUE(absl::IsPermissionDenied(trusted.Verify(bundle)));
  key.Sign(bundle);
  EXPECT_TRUE(trusted.Verify(bundle).ok());
  v1::SignedBundle changed = bundle;
  changed.set_bundle("Bundle");
  EXPECT_TRUE(absl::IsPermissionDenied(trusted.Verify(changed)));
  changed = bundle;
  changed.set_created_unix_ms(1);
  EXPECT_TRUE(absl::IsPermissionDenied(trusted.Verify(changed)));
  EXPECT_EQ(SignedPayload(bundle).front(), '\x81');
  EXPECT_NE(SignedPayload(v1::SignedManifest()).front(), '\x81');
}

TEST(SigningTest, StrangersAndMissingSignaturesAreRefused) {
  const SigningKey key = SigningKey::Generate();
  const SigningKey stranger = SigningKey::Generate();
  v1::SignedManifest manifest = SomeManifest();
  EXPECT_EQ(Trusting(key).Verify(manifest).message(), "the artifact is not signed");
  stranger.Sign(manifest);
  const absl::Status status = Trusting(key).Verify(manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(std::string(status.message()).find(stranger.key_id() + " (not trusted)"), std::string::npos) << status;
  // A stranger who claims the trusted signer's id does not get further.
  manifest.mutable_signatures(0)->set_signer(key.key_id());
  EXPECT_FALSE(Trusting(key).Verify(manifest).ok());
  EXPECT_FALSE(TrustedKeys().Verify(manifest).ok());
}

TEST(SigningTest, OneOfSeveralSignaturesIsEnough) {
  const SigningKey old_key = SigningKey::Generate();
  const SigningKey new_key = SigningKey::Generate();
  v1::SignedManifest manifest = SomeManifest();
  old_key.Sign(manifest);
  new_key.Sign(manifest);
  new_key.Sign(manifest);  // replaces its own
  EXPECT_EQ(manifest.signatures_size(), 2);
  EXPECT_TRUE(Trusting(old_key).Verify(manifest).ok());
  EXPECT_TRUE(Trusting(new_key).Verify(manifest).ok());
}

TEST(SigningTest, PublicKeysHave32Bytes) {
  TrustedKeys keys;
  EXPECT_EQ(keys.Add("short").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(keys.empty());
  EXPECT_EQ(KeyId(std::string(32, 'k')), Sha256(std::string(32, 'k')).Hex().substr(0, 16));
}

TEST_F(KeyFileTest, IsCreatedOnceAndReadAgain) {
  const auto created = SigningKey::LoadOrCreate(path_);
  ASSERT_TRUE(created.ok()) << created.status();
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  const auto loaded = SigningKey::LoadOrCreate(path_);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(created->public_key(), loaded->public_key());
  v1::SignedManifest manifest = SomeManifest();
  loaded->Sign(manifest);
  EXPECT_TRUE(Trusting(*created).Verify(manifest).ok());
  const auto files = std::distance(std::filesystem::directory_iterator(folder_), std::filesystem::directory_iterator());
  EXPECT_EQ(files, 1) << "temporary files are removed";
}

TEST_F(KeyFileTest, WritersAtTheSameTimeAgree) {
  std::vector<std::string> public_keys(8);
  std::vector<std::thread> threads;
  for (std::string& public_key : public_keys) {
    threads.emplace_back([this, &public_key] {
      const auto key = SigningKey::LoadOrCreate(path_);
      if (key.ok()) public_key = key->public_key();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(public_keys[0].size(), 32u);
  for (const std::string& public_key : public_keys) EXPECT_EQ(public_key, public_keys[0]);
}

TEST_F(KeyFileTest, FilesThatOthersMayReadAreRefused) {
  ASSERT_TRUE(SigningKey::LoadOrCreate(path_).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  const absl::Status status = SigningKey::LoadOrCreate(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_NE(std::string(status.message()).find(path_), std::string::npos);
}

TEST_F(KeyFileTest, DamagedOrForeignFilesAreRefusedAndKept) {
  const std::string contents[] = {"", "not a key", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"};
  for (const std::string& content : contents) {
    std::ofstream(path_, std::ios::trunc) << content;
    ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
    EXPECT_EQ(SigningKey::LoadOrCreate(path_).status().code(), absl::StatusCode::kInvalidArgument) << content;
    EXPECT_EQ(std::filesystem::file_size(path_), content.size());
  }
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_EQ(SigningKey::LoadOrCreate(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KeyFileTest, MissingFolderIsAnError) {
  const absl::Status status = SigningKey::LoadOrCreate(folder_ + "/missing/key.pem").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
}

}  // namespace
}  // namespace stepone
