#include "client/json_writer.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace stepone::client {

void JsonWriter::Quote(std::string_view value) {
  text_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      text_ += '\\';
      text_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      text_ += absl::StrFormat("\\u%04x", static_cast<unsigned char>(c));
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

void JsonWriter::Name(std::string_view name) {
  if (!first_) text_ += ',';
  first_ = false;
  if (name.empty()) return;
  Quote(name);
  text_ += ':';
}

void JsonWriter::Open(std::string_view name, char bracket) {
  Name(name);
  text_ += bracket;
  first_ = true;
}

void JsonWriter::Close(char bracket) {
  text_ += bracket;
  first_ = false;
}

void JsonWriter::Text(std::string_view name, std::string_view value) {
  Name(name);
  Quote(value);
}

void JsonWriter::Number(std::string_view name, double value) {
  Name(name);
  text_ += std::isfinite(value) ? absl::StrFormat("%.17g", value) : "null";
}

void JsonWriter::Integer(std::string_view name, int64_t value) {
  Name(name);
  text_ += std::to_string(value);
}

void JsonWriter::Flag(std::string_view name, bool value) {
  Name(name);
  text_ += value ? "true" : "false";
}

}  // namespace stepone::client
