#include "proto/status.h"

#include <gtest/gtest.h>

#include <string>

namespace stepone {
namespace {

TEST(StatusTest, DetailSurvivesTheWire) {
  v1::ErrorDetail detail;
  detail.set_pass("fuse");
  detail.set_reproducer_id("r-17");
  detail.set_retry_after_ms(250);
  detail.add_known_values("default");
  const absl::Status sent = WithDetail(absl::InternalError("pass failed"), detail);

  v1::ErrorDetail received;
  ASSERT_TRUE(received.ParseFromString(ToErrorDetail(sent).SerializeAsString()));
  EXPECT_EQ(received.code(), static_cast<int>(absl::StatusCode::kInternal));
  EXPECT_EQ(received.message(), "pass failed");

  const absl::Status status = FromErrorDetail(received);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "pass failed");
  const v1::ErrorDetail again = ToErrorDetail(status);
  EXPECT_EQ(again.pass(), "fuse");
  EXPECT_EQ(again.reproducer_id(), "r-17");
  EXPECT_EQ(again.retry_after_ms(), 250);
  ASSERT_EQ(again.known_values_size(), 1);
  EXPECT_EQ(again.known_values(0), "default");
}

TEST(StatusTest, EveryErrorCodeRoundTrips) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    EXPECT_EQ(FromErrorDetail(ToErrorDetail(status)).code(), status.code()) << code;
  }
}

TEST(StatusTest, CodeAndMessageComeFromTheStatus) {
  v1::ErrorDetail detail;
  detail.set_code(3);
  detail.set_message("stale");
  const v1::ErrorDetail result = ToErrorDetail(WithDetail(absl::UnavailableError("busy"), detail));
  EXPECT_EQ(result.code(), static_cast<int>(absl::StatusCode::kUnavailable));
  EXPECT_EQ(result.message(), "busy");
}

TEST(StatusTest, UnknownCodesBecomeInternal) {
  for (int code : {0, -1, 17, 1000}) {
    v1::ErrorDetail detail;
    detail.set_code(code);
    detail.set_message("from another version");
    const absl::Status status = FromErrorDetail(detail);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << code;
    EXPECT_NE(std::string(status.message()).find("from another version"), std::string::npos);
  }
}

TEST(StatusTest, LongMessagesAreCutAtACharacter) {
  EXPECT_EQ(ToErrorDetail(absl::InternalError(std::string(1024, 'x'))).message().size(), 1024u);
  EXPECT_EQ(ToErrorDetail(absl::InternalError(std::string(5000, 'x'))).message().size(), 1024u);
  std::string text(1023, 'x');
  text += "\xC3\xA4";  // one letter of two bytes across the limit
  EXPECT_EQ(ToErrorDetail(absl::InternalError(text)).message(), std::string(1023, 'x'));
}

TEST(StatusTest, InvalidNodeNamesNodeAndRule) {
  const absl::Status status = InvalidNode("mm_3", "type-mismatch", "expected float32");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "node 'mm_3' (type-mismatch): expected float32");
  const v1::ErrorDetail detail = ToErrorDetail(status);
  EXPECT_EQ(detail.node(), "mm_3");
  EXPECT_EQ(detail.rule(), "type-mismatch");
}

}  // namespace
}  // namespace stepone
