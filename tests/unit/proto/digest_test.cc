#include "proto/digest.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace stepone {
namespace {

// FIPS 180-2, appendix B.
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kEmpty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr char kMillionA[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(DigestTest, MatchesPublishedValues) {
  EXPECT_EQ(Sha256("abc").Hex(), kAbc);
  EXPECT_EQ(Sha256("").Hex(), kEmpty);
  EXPECT_EQ(Sha256(std::string(1000000, 'a')).Hex(), kMillionA);
}

TEST(DigestTest, StreamEqualsWhole) {
  Hasher hasher;
  for (int i = 0; i < 1000; ++i) hasher.Update(std::string(1000, 'a'));
  hasher.Update("");
  EXPECT_EQ(hasher.Finish().Hex(), kMillionA);
}

TEST(DigestTest, HasherMoves) {
  Hasher first;
  first.Update("ab");
  Hasher second = std::move(first);
  second.Update("c");
  EXPECT_EQ(second.Finish().Hex(), kAbc);
}

TEST(DigestTest, RawAndHexRoundTrip) {
  const Digest digest = Sha256("abc");
  EXPECT_EQ(digest.Raw().size(), 32u);
  EXPECT_EQ(Digest::FromRaw(digest.Raw()), digest);
  EXPECT_EQ(Digest::FromHex(digest.Hex()), digest);
  EXPECT_EQ(Digest::FromHex("BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD"), digest);
}

TEST(DigestTest, RefusesOtherLengthsAndCharacters) {
  EXPECT_FALSE(Digest::FromRaw(""));
  EXPECT_FALSE(Digest::FromRaw(std::string(31, 'x')));
  EXPECT_FALSE(Digest::FromRaw(std::string(33, 'x')));
  EXPECT_FALSE(Digest::FromHex(std::string(kAbc).substr(1)));
  EXPECT_FALSE(Digest::FromHex(std::string(kAbc) + "0"));
  std::string bad = kAbc;
  bad[63] = 'g';
  EXPECT_FALSE(Digest::FromHex(bad));
  bad[63] = '/';
  EXPECT_FALSE(Digest::FromHex(bad));
}

TEST(DigestTest, OrderIsThatOfTheBytes) {
  Digest low, high;
  low.bytes[0] = 0x7F;
  high.bytes[0] = 0x80;
  EXPECT_LT(low, high);
  EXPECT_EQ(low, low);
  EXPECT_NE(DigestHash()(low), DigestHash()(high));
}

}  // namespace
}  // namespace stepone
