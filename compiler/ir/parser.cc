#include <charconv>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/ir/text.h"
#include "proto/str_cat.h"

namespace stepone::ir {
namespace {

bool IsWordChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

// Recursive descent over one line at a time. The first error sticks; after it every method returns something harmless.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  absl::StatusOr<Graph> ParseGraph() {
    bool header = false;
    while (error_.ok() && NextLine()) {
      if (AtEnd()) continue;
      if (!header) {
        ParseHeader();
        header = true;
      } else {
        ParseStatement();
      }
      if (error_.ok() && !AtEnd()) Fail("end of line");
    }
    if (!header) Fail("'graph'");
    if (!error_.ok()) return error_;
    return std::move(graph_);
  }

 private:
  // --- characters ---
  bool NextLine() {
    if (next_ > text_.size() || (next_ == text_.size() && line_ > 0)) return false;
    const size_t end = std::min(text_.find('\n', next_), text_.size());
    rest_ = text_.substr(next_, end - next_);
    next_ = end + 1;
    ++line_;
    return true;
  }

  void SkipSpace() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t' || rest_[0] == '\r')) rest_.remove_prefix(1);
    if (!rest_.empty() && rest_[0] == '#') rest_ = {};
  }

  bool AtEnd() {
    SkipSpace();
    return rest_.empty();
  }

  bool Peek(char c) {
    SkipSpace();
    return !rest_.empty() && rest_[0] == c;
  }

  bool Take(char c) {
    if (!Peek(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void Expect(char c) {
    if (!Take(c)) Fail(StrCat("'", std::string_view(&c, 1), "'"));
  }

  std::string_view PeekWord() {
    SkipSpace();
    size_t n = 0;
    while (n < rest_.size() && IsWordChar(rest_[n])) ++n;
    return rest_.substr(0, n);
  }

  std::string_view Word(std::string_view what) {
    const std::string_view word = PeekWord();
    if (word.empty()) Fail(what);
    rest_.remove_prefix(word.size());
    return word;
  }

  bool TakeWord(std::string_view word) {
    if (PeekWord() != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  void Fail(std::string_view expected) {
    if (!error_.ok()) return;
    error_ = absl::InvalidArgumentError(StrCat("line ", line_, ": expected ", expected,
                                               rest_.empty() ? " at the end" : " before '", rest_.substr(0, 30),
                                               rest_.empty() ? "" : "'"));
    rest_ = {};
  }

  // --- literals ---
  bool AtNumber() {
    SkipSpace();
    if (rest_.empty()) return false;
    return rest_[0] == '-' || (rest_[0] >= '0' && rest_[0] <= '9') || PeekWord() == "inf" || PeekWord() == "nan";
  }

  // An int64_t or a double.
  Attr Number() {
    SkipSpace();
    size_t n = 0;
    while (n < rest_.size() && (IsWordChar(rest_[n]) || rest_[n] == '-' || rest_[n] == '+')) ++n;
    const std::string_view token = rest_.substr(0, n);
    const char* end = token.data() + token.size();
    int64_t integer = 0;
    if (const auto r = std::from_chars(token.data(), end, integer); r.ec == std::errc() && r.ptr == end) {
      rest_.remove_prefix(n);
      return integer;
    }
    double real = 0;
    if (const auto r = std::from_chars(token.data(), end, real); r.ec == std::errc() && r.ptr == end) {
      rest_.remove_prefix(n);
      return token == "nan" ? std::numeric_limits<double>::quiet_NaN() : real;
    }
    Fail("a number");
    return int64_t{0};
  }

  int64_t Integer() {
    if (AtNumber()) {
      const Attr number = Number();
      if (const auto* integer = std::get_if<int64_t>(&number)) return *integer;
    }
    Fail("an integer");
    return 0;
  }

  double Float() {
    if (AtNumber()) {
      const Attr number = Number();
      if (const auto* real = std::get_if<double>(&number)) return *real;
    }
    Fail("a floating-point number");
    return 0;
  }

  Dims IntegerList(char open, char close) {
    Dims dims;
    Expect(open);
    while (error_.ok() && !Peek(close)) {
      dims.push_back(Integer());
      if (!Take(',')) break;
    }
    Expect(close);
    return dims;
  }

  std::string String() {
    std::string out;
    Expect('"');
    while (error_.ok()) {
      if (rest_.empty()) {
        Fail("'\"'");
        break;
      }
      char c = rest_[0];
      rest_.remove_prefix(1);
      if (c == '"') break;
      if (c == '\\' && !rest_.empty()) {
        c = rest_[0] == 'n' ? '\n' : rest_[0];
        rest_.remove_prefix(1);
      }
      out += c;
    }
    return out;
  }

  std::string Hex() {
    const std::string_view word = Word("0x and hexadecimal digits");
    const auto digit = [](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    std::string out;
    if (word.substr(0, 2) != "0x" || word.size() % 2 != 0) Fail("0x and pairs of hexadecimal digits");
    for (size_t i = 2; error_.ok() && i < word.size(); i += 2) {
      if (digit(word[i]) < 0 || digit(word[i + 1]) < 0) Fail("hexadecimal digits");
      out += static_cast<char>(digit(word[i]) * 16 + digit(word[i + 1]));
    }
    return out;
  }

  TensorType Type() {
    TensorType type;
    type.plain = !TakeWord("opaque");
    if (!type.plain) Expect(':');
    const auto dtype = DTypeFromName(PeekWord());
    if (!dtype) {
      Fail("a type such as f32[2,3]");
      return type;
    }
    Word("a dtype");
    type.dtype = *dtype;
    type.sizes = IntegerList('[', ']');
    type.strides = Peek('{') ? IntegerList('{', '}') : ContiguousStrides(type.sizes);
    if (type.strides.size() != type.sizes.size()) Fail("as many strides as sizes");
    return type;
  }

  // --- values ---
  int64_t ValueNumber() {
    Expect('%');
    return error_.ok() ? Integer() : 0;
  }

  ValueId Use() {
    const int64_t number = ValueNumber();
    const auto found = values_.find(number);
    if (found != values_.end()) return found->second;
    Fail(StrCat("a value that is defined above (not %", number, ")"));
    return kNoValue;
  }

  void Define(int64_t number, ValueId value) {
    if (!values_.emplace(number, value).second) Fail(StrCat("a new value (%", number, " is defined above)"));
  }

  // --- statements ---
  void ParseHeader() {
    if (!TakeWord("graph")) return Fail("'graph'");
    const std::string_view role = Word("a role");
    if (role == "forward") {
      graph_.role = Role::kForward;
    } else if (role == "backward") {
      graph_.role = Role::kBackward;
    } else if (role == "joint") {
      graph_.role = Role::kJoint;
    } else if (role == "inference") {
      graph_.role = Role::kInference;
    } else {
      Fail("forward, backward, joint or inference");
    }
  }

  void ParseStatement() {
    if (TakeWord("output")) return ParseOutput();
    if (TakeWord("input")) {
      graph_.inputs.push_back(kNoValue);
      graph_.input_numbers.push_back(Integer());
      return;
    }
    std::vector<int64_t> results;  // -1: not used
    if (Peek('%') || PeekWord() == "_") {
      do {
        results.push_back(TakeWord("_") ? -1 : ValueNumber());
      } while (error_.ok() && Take(','));
      Expect('=');
    }
    if (!error_.ok()) return;
    if (results.size() == 1 && TakeWord("input")) return ParseInput(results[0]);
    if (results.size() == 1 && TakeWord("constant")) return ParseConstant(results[0]);
    ParseNode(results);
  }

  void ParseOutput() {
    Output output;
    if (Peek('%')) {
      output.value = Use();
    } else if (!TakeWord("none")) {
      output.number = Integer();
    }
    graph_.outputs.push_back(output);
  }

  ValueId TypedValue(int64_t number) {
    Expect(':');
    TensorType type = Type();
    const ValueId value = graph_.AddValue(std::move(type), Peek('"') ? String() : "");
    Define(number, value);
    return value;
  }

  void ParseInput(int64_t number) {
    graph_.inputs.push_back(TypedValue(number));
    graph_.input_numbers.push_back(std::nullopt);
  }

  void ParseConstant(int64_t number) {
    std::string data = Hex();
    graph_.constants.push_back({TypedValue(number), std::move(data)});
  }

  void ParseNode(const std::vector<int64_t>& results) {
    const std::string_view name = Word("an op");
    std::vector<ValueId> operands;
    Attrs attrs;
    auto call = std::make_shared<Call>();
    const bool is_call = Peek('(');
    Op op = Op::kAten;
    if (is_call) {
      call->op = std::string(name);
      ParseCall(*call, operands, results.size());
    } else {
      const auto known = OpFromName(name);
      if (!known) return Fail(StrCat("a known op (not '", name, "')"));
      op = *known;
      while (error_.ok() && Peek('%')) {
        operands.push_back(Use());
        if (!Take(',')) break;
      }
      ParseAttrs(attrs);
    }
    std::vector<TensorType> types;
    std::vector<bool> present;
    for (size_t i = 0; error_.ok() && i < results.size(); ++i) {
      Expect(i == 0 ? ':' : ',');
      present.push_back(results[i] >= 0);
      if (results[i] >= 0) {
        types.push_back(Type());
      } else if (!TakeWord("_")) {
        Fail("'_'");
      }
    }
    std::vector<std::string> sources;
    if (TakeWord("from")) {
      do {
        sources.push_back(String());
      } while (error_.ok() && Take(','));
    }
    if (!error_.ok()) return;
    const NodeId id = graph_.AddNode(op, std::move(operands), std::move(types), std::move(attrs), std::move(sources));
    graph_.SetResultsUsed(id, present);
    Node& node = graph_.node(id);
    if (is_call) node.call = std::move(call);
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i] >= 0) Define(results[i], node.results[i]);
    }
  }

  void ParseAttrs(Attrs& attrs) {
    if (!Take('{')) return;
    while (error_.ok() && !Peek('}')) {
      const std::string name(Word("an attribute"));
      Expect('=');
      Attr attr;
      if (Peek('[')) {
        attr = IntegerList('[', ']');
      } else if (TakeWord("true")) {
        attr = true;
      } else if (TakeWord("false")) {
        attr = false;
      } else {
        attr = Number();
      }
      attrs.emplace(name, std::move(attr));
      if (!Take(',')) break;
    }
    Expect('}');
  }

  void ParseCall(Call& call, std::vector<ValueId>& operands, size_t num_results) {
    Expect('(');
    while (error_.ok() && !Peek(')')) {
      Argument argument;
      argument.name = std::string(Word("an argument's name"));
      Expect('=');
      argument.value = ParseArgument(operands);
      call.arguments.push_back(std::move(argument));
      if (!Take(',')) break;
    }
    Expect(')');
    call.result_aliases.assign(num_results, -1);
    if (!Take('{')) return;
    while (error_.ok() && !Peek('}')) {
      if (TakeWord("aliases")) {
        Expect('=');
        const Dims list = IntegerList('[', ']');
        call.result_aliases.assign(list.begin(), list.end());
      } else if (TakeWord("mutates")) {
        Expect('=');
        const Dims list = IntegerList('[', ']');
        call.mutated_operands.assign(list.begin(), list.end());
      } else if (TakeWord("rng")) {
        call.uses_rng = true;
      } else if (TakeWord("list")) {
        call.results_are_list = true;
      } else {
        Fail("aliases, mutates, rng or list");
      }
      if (!Take(',')) break;
    }
    Expect('}');
  }

  OperandRef Operand(std::vector<ValueId>& operands) {
    operands.push_back(Use());
    return OperandRef{static_cast<int32_t>(operands.size()) - 1};
  }

  ArgumentValue ParseArgument(std::vector<ValueId>& operands) {
    if (Peek('%')) return Operand(operands);
    if (Peek('"')) return String();
    if (Peek('[')) return ParseList(operands);
    if (AtNumber()) {
      const Attr number = Number();
      if (const auto* real = std::get_if<double>(&number)) return *real;
      return std::get<int64_t>(number);
    }
    const std::string_view word = Word("an argument");
    if (word == "none") return NoneArg{};
    if (word == "true" || word == "false") return word == "true";
    if (const auto dtype = DTypeFromName(word)) return *dtype;
    if (word == "ints" || word == "floats" || word == "bools" || word == "strings" || word == "tensors") {
      Expect('[');
      Expect(']');
      if (word == "ints") return Dims{};
      if (word == "floats") return std::vector<double>{};
      if (word == "bools") return std::vector<bool>{};
      if (word == "strings") return std::vector<std::string>{};
      return OperandList{};
    }
    Expect('(');
    ArgumentValue value;
    if (word == "device") {
      value = DeviceArg{String()};
    } else if (word == "layout") {
      value = LayoutArg{String()};
    } else if (word == "memory_format") {
      value = MemoryFormatArg{String()};
    } else if (word == "complex") {
      const double real = Float();
      Expect(',');
      value = std::complex<double>(real, Float());
    } else {
      Fail("device, layout, memory_format or complex");
    }
    Expect(')');
    return value;
  }

  // Not empty: its first element says of what it is a list.
  ArgumentValue ParseList(std::vector<ValueId>& operands) {
    Expect('[');
    ArgumentValue list;
    if (Peek('%') || PeekWord() == "none") {
      list = Elements<OperandList>(
          [&](OperandList& to) { to.operands.push_back(TakeWord("none") ? -1 : Operand(operands).operand); });
    } else if (Peek('"')) {
      list = Elements<std::vector<std::string>>([&](auto& to) { to.push_back(String()); });
    } else if (PeekWord() == "true" || PeekWord() == "false") {
      list = Elements<std::vector<bool>>([&](auto& to) {
        const std::string_view word = Word("true or false");
        if (word != "true" && word != "false") Fail("true or false");
        to.push_back(word == "true");
      });
    } else {
      const std::string_view start = rest_;
      const bool integers = AtNumber() && std::holds_alternative<int64_t>(Number());
      if (error_.ok()) rest_ = start;
      if (integers) {
        list = Elements<Dims>([&](auto& to) { to.push_back(Integer()); });
      } else {
        list = Elements<std::vector<double>>([&](auto& to) { to.push_back(Float()); });
      }
    }
    Expect(']');
    return list;
  }

  template <typename List, typename TakeOne>
  List Elements(TakeOne take_one) {
    List list;
    do {
      take_one(list);
    } while (error_.ok() && Take(','));
    return list;
  }

  const std::string_view text_;
  size_t next_ = 0;
  int line_ = 0;
  std::string_view rest_;
  absl::Status error_;
  Graph graph_;
  absl::flat_hash_map<int64_t, ValueId> values_;
};

}  // namespace

absl::StatusOr<Graph> Parse(std::string_view text) { return Parser(text).ParseGraph(); }

}  // namespace stepone::ir
