// Writes JSON for the Python side: objects and lists, in order.
#ifndef STEPONE_CLIENT_JSON_WRITER_H_
#define STEPONE_CLIENT_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace stepone::client {

// Not thread-safe. Calls must nest: each Begin has its End; inside an object each value has a name, in a list none.
class JsonWriter {
 public:
  void BeginObject(std::string_view name = {}) { Open(name, '{'); }
  void EndObject() { Close('}'); }
  void BeginList(std::string_view name = {}) { Open(name, '['); }
  void EndList() { Close(']'); }

  void Text(std::string_view name, std::string_view value);
  void Number(std::string_view name, double value);
  void Integer(std::string_view name, int64_t value);
  void Flag(std::string_view name, bool value);

  std::string Take() { return std::move(text_); }

 private:
  void Name(std::string_view name);
  void Quote(std::string_view value);
  void Open(std::string_view name, char bracket);
  void Close(char bracket);

  std::string text_;
  bool first_ = true;  // in the innermost object or list
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_JSON_WRITER_H_
