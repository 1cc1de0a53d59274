#include "proto/status.h"

#include <utility>

#include "absl/strings/cord.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

constexpr char kPayloadUrl[] = "type.googleapis.com/stepone.v1.ErrorDetail";
constexpr size_t kMaxMessageBytes = 1024;

// Cuts at a character boundary: protobuf refuses to send a string that is not UTF-8.
std::string Shortened(std::string_view message) {
  if (message.size() <= kMaxMessageBytes) return std::string(message);
  size_t end = kMaxMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
  return std::string(message.substr(0, end));
}

bool IsStatusCode(int code) {
  return code > static_cast<int>(absl::StatusCode::kOk) && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
}

}  // namespace

absl::Status WithDetail(absl::Status status, v1::ErrorDetail detail) {
  detail.set_code(static_cast<int>(status.code()));
  detail.set_message(Shortened(ToStd(status.message())));
  status.SetPayload(kPayloadUrl, absl::Cord(detail.SerializeAsString()));
  return status;
}

v1::ErrorDetail ToErrorDetail(const absl::Status& status) {
  v1::ErrorDetail detail;
  if (const auto payload = status.GetPayload(kPayloadUrl)) {
    if (!detail.ParseFromString(std::string(*payload))) detail.Clear();
  }
  detail.set_code(static_cast<int>(status.code()));
  detail.set_message(Shortened(ToStd(status.message())));
  return detail;
}

absl::Status FromErrorDetail(const v1::ErrorDetail& detail) {
  if (IsStatusCode(detail.code())) {
    return WithDetail(absl::Status(static_cast<absl::StatusCode>(detail.code()), detail.message()), detail);
  }
  return WithDetail(absl::InternalError(StrCat("error with unknown code ", detail.code(), ": ", detail.message())),
                    detail);
}

absl::Status InvalidNode(std::string_view node, std::string_view rule, std::string_view message) {
  v1::ErrorDetail detail;
  detail.set_node(std::string(node));
  detail.set_rule(std::string(rule));
  return WithDetail(absl::InvalidArgumentError(StrCat("node '", node, "' (", rule, "): ", message)), std::move(detail));
}

}  // namespace stepone
