#include "cache/entry_file.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/unit/cache/store_test_support.h"

namespace stepone {
namespace {

TEST(EntryFileTest, RoundTrips) {
  const EntryId id = KernelId(1);
  for (const std::string& content : {std::string(), std::string("x"), Noise(5000), std::string(100000, 'z')}) {
    for (const std::string& label : {std::string(), std::string(kMaxLabelBytes, 'l'), std::string("\0\xFF", 2)}) {
      const std::string file = EncodeEntryFile(id, label, content);
      const auto decoded = DecodeEntryFile(id, file);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      EXPECT_EQ(decoded->content, content);
      EXPECT_EQ(decoded->label, label);
      const auto head = PeekEntryFile(id, std::string_view(file).substr(0, kMaxEntryHeadBytes), file.size());
      ASSERT_TRUE(head.ok()) << head.status();
      EXPECT_EQ(head->label, label);
      EXPECT_EQ(head->content_bytes, content.size());
    }
  }
}

TEST(EntryFileTest, CompressesWhatShrinks) {
  EXPECT_LT(EncodeEntryFile(KernelId(1), "", std::string(100000, 'z')).size(), 1000u);
  EXPECT_EQ(EncodeEntryFile(KernelId(1), "", Noise(5000)).size(), 96 + 5000u);
}

TEST(EntryFileTest, EveryFlippedBitAndTruncationIsFound) {
  const EntryId id = ArtifactId(1);
  for (const std::string& content : {Noise(200), std::string(2000, 'z')}) {
    const std::string good = EncodeEntryFile(id, "label", content);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] ^= static_cast<char>(1 << (i % 8));
      ASSERT_EQ(DecodeEntryFile(id, bad).status().code(), absl::StatusCode::kDataLoss) << i;
      ASSERT_EQ(DecodeEntryFile(id, good.substr(0, i)).status().code(), absl::StatusCode::kDataLoss) << i;
    }
    EXPECT_EQ(DecodeEntryFile(id, good + "x").status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(EntryFileTest, AnotherEntrysFileIsDamage) {
  const std::string file = EncodeEntryFile(KernelId(1), "", "content");
  EXPECT_EQ(DecodeEntryFile(KernelId(2), file).status().code(), absl::StatusCode::kDataLoss);
  const EntryId other_kind{Kind::kArtifact, KernelId(1).key};
  EXPECT_EQ(DecodeEntryFile(other_kind, file).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(PeekEntryFile(KernelId(2), file, file.size()).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace stepone
