// absl::StrCat for std::string_view. Distributions build Abseil for C++14, where absl::string_view is a class of its
// own that std::string_view does not convert to; everything else goes to absl::StrCat as it is.
#ifndef STEPONE_PROTO_STR_CAT_H_
#define STEPONE_PROTO_STR_CAT_H_

#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace stepone {

// The same characters as Abseil's type, for calls that want it (absl::Status, absl::StrSplit, heterogeneous look-ups).
inline absl::string_view ToAbsl(std::string_view text) { return absl::string_view(text.data(), text.size()); }
inline std::string_view ToStd(absl::string_view text) { return std::string_view(text.data(), text.size()); }

namespace str_cat_internal {
template <typename T>
const T& Piece(const T& part) {
  return part;
}
inline absl::string_view Piece(const std::string_view& part) { return ToAbsl(part); }
}  // namespace str_cat_internal

template <typename... T>
std::string StrCat(const T&... parts) {
  return absl::StrCat(str_cat_internal::Piece(parts)...);
}

}  // namespace stepone

#endif  // STEPONE_PROTO_STR_CAT_H_
