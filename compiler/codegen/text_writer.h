// Indented C text.
#ifndef STEPONE_COMPILER_CODEGEN_TEXT_WRITER_H_
#define STEPONE_COMPILER_CODEGEN_TEXT_WRITER_H_

#include <string>
#include <utility>

#include "proto/str_cat.h"

namespace stepone::codegen {

// Not thread-safe.
class TextWriter {
 public:
  template <typename... Parts>
  void Line(const Parts&... parts) {
    text_.append(indent_, ' ');
    text_ += StrCat(parts...);
    text_ += '\n';
  }
  // A line that ends in " {" and what Close() ends.
  template <typename... Parts>
  void Open(const Parts&... parts) {
    Line(parts..., " {");
    indent_ += 2;
  }
  void Close() {
    indent_ -= 2;
    Line("}");
  }
  template <typename... Parts>
  void CloseAndOpen(const Parts&... parts) {
    indent_ -= 2;
    Open("} ", parts...);
  }

  const std::string& text() const { return text_; }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
  size_t indent_ = 0;
};

}  // namespace stepone::codegen

#endif  // STEPONE_COMPILER_CODEGEN_TEXT_WRITER_H_
