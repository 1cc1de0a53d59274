#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "compiler/ir/text.h"

namespace stepone::ir {
namespace {

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string Quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    out += c;
  }
  return out + '"';
}

std::string HexText(std::string_view data) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  out.reserve(2 + 2 * data.size());
  out.append("0x");
  for (const char c : data) {
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return out;
}

template <typename List, typename ToText>
std::string ListText(std::string_view empty, const List& list, ToText to_text) {
  if (list.empty()) return std::string(empty) + "[]";
  std::string out = "[";
  for (size_t i = 0; i < list.size(); ++i) {
    if (i > 0) out += ", ";
    out += to_text(list[i]);
  }
  return out + ']';
}

std::string DimsText(const Dims& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ',';
    out += std::to_string(dims[i]);
  }
  return out + ']';
}

std::string AttrText(const Attr& attr) {
  if (const auto* value = std::get_if<int64_t>(&attr)) return std::to_string(*value);
  if (const auto* value = std::get_if<double>(&attr)) return FloatText(*value);
  if (const auto* value = std::get_if<bool>(&attr)) return *value ? "true" : "false";
  return DimsText(std::get<Dims>(attr));
}

std::string_view RoleText(Role role) {
  switch (role) {
    case Role::kForward:
      return "forward";
    case Role::kBackward:
      return "backward";
    case Role::kJoint:
      return "joint";
    case Role::kInference:
      return "inference";
  }
  return "forward";
}

class Printer {
 public:
  Printer(const Graph& graph, const PrintOptions& options) : graph_(graph), options_(options) {
    if (!options.raw_ids) numbers_.assign(graph.num_values(), kNoValue);
  }

  std::string PrintGraph() {
    out_ = "graph ";
    out_ += RoleText(graph_.role);
    out_ += '\n';
    for (size_t i = 0; i < graph_.inputs.size(); ++i) PrintInput(i);
    for (const Constant& constant : graph_.constants) {
      out_ += Define(constant.value) + " = constant " + HexText(constant.data) + " : " +
              ToString(graph_.type(constant.value));
      PrintName(graph_.value(constant.value).name);
      out_ += '\n';
    }
    for (const NodeId id : graph_.order()) PrintLine(id);
    for (const Output& output : graph_.outputs) {
      out_ += "output ";
      if (output.value != kNoValue) {
        out_ += Use(output.value);
      } else {
        out_ += output.number ? std::to_string(*output.number) : "none";
      }
      out_ += '\n';
    }
    return std::move(out_);
  }

  std::string PrintOne(NodeId id) {
    PrintLine(id);
    out_.pop_back();
    return std::move(out_);
  }

 private:
  std::string Define(ValueId value) {
    if (value == kNoValue) return "_";
    if (!options_.raw_ids && numbers_[value] == kNoValue) numbers_[value] = next_++;
    return Use(value);
  }

  // A value that nothing defines (the graph is broken, or a dropped node made it) is shown by its own id and a mark.
  std::string Use(ValueId value) {
    if (value == kNoValue) return "none";
    if (options_.raw_ids) return '%' + std::to_string(value);
    if (numbers_[value] == kNoValue) return "%undefined_" + std::to_string(value);
    return '%' + std::to_string(numbers_[value]);
  }

  void PrintName(const std::string& name) {
    if (options_.names && !name.empty()) out_ += ' ' + Quoted(name);
  }

  void PrintInput(size_t i) {
    const ValueId value = graph_.inputs[i];
    if (value == kNoValue) {
      out_ += "input " + std::to_string(graph_.input_numbers[i].value_or(0)) + '\n';
      return;
    }
    out_ += Define(value) + " = input : " + ToString(graph_.type(value));
    PrintName(graph_.value(value).name);
    out_ += '\n';
  }

  void PrintLine(NodeId id) {
    const Node& node = graph_.node(id);
    std::string operands;
    if (node.call != nullptr) {
      operands = CallText(node);
    } else {
      operands = std::string(Name(node.op));
      for (size_t i = 0; i < node.operands.size(); ++i) operands += (i > 0 ? ", " : " ") + Use(node.operands[i]);
      operands += AttrsText(node.attrs);
    }
    for (size_t i = 0; i < node.results.size(); ++i) out_ += (i > 0 ? ", " : "") + Define(node.results[i]);
    if (!node.results.empty()) out_ += " = ";
    out_ += operands;
    for (size_t i = 0; i < node.results.size(); ++i) {
      out_ += i > 0 ? ", " : " : ";
      out_ += node.results[i] == kNoValue ? "_" : ToString(graph_.type(node.results[i]));
    }
    if (options_.names) {
      for (size_t i = 0; i < node.sources.size(); ++i) out_ += (i > 0 ? ", " : " from ") + Quoted(node.sources[i]);
    }
    out_ += '\n';
  }

  static std::string AttrsText(const Attrs& attrs) {
    if (attrs.empty()) return "";
    std::string out = " {";
    bool first = true;
    for (const auto& [name, attr] : attrs) {
      if (!first) out += ", ";
      first = false;
      out += name + '=' + AttrText(attr);
    }
    return out + '}';
  }

  std::string CallText(const Node& node) {
    const Call& call = *node.call;
    std::string out = call.op + '(';
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      if (i > 0) out += ", ";
      out += call.arguments[i].name + '=' + ArgumentText(node, call.arguments[i].value);
    }
    out += ')';
    std::vector<std::string> marks;

    bool aliases = false;
    for (const int32_t operand : call.result_aliases) aliases |= operand >= 0;
    if (aliases) marks.push_back("aliases=" + DimsText(Dims(call.result_aliases.begin(), call.result_aliases.end())));
    if (!call.mutated_operands.empty()) {
      marks.push_back("mutates=" + DimsText(Dims(call.mutated_operands.begin(), call.mutated_operands.end())));
    }
    if (call.uses_rng) marks.push_back("rng");
    if (call.results_are_list) marks.push_back("list");
    for (size_t i = 0; i < marks.size(); ++i) out += (i > 0 ? ", " : " {") + marks[i];
    return marks.empty() ? out : out + '}';
  }

  std::string ArgumentText(const Node& node, const ArgumentValue& value) {
    const auto operand = [&](int32_t index) { return index < 0 ? std::string("none") : Use(node.operands[index]); };
    return std::visit(
        [&](const auto& v) -> std::string {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, NoneArg>) {
            return "none";
          } else if constexpr (std::is_same_v<T, OperandRef>) {
            return operand(v.operand);
          } else if constexpr (std::is_same_v<T, OperandList>) {
            return ListText("tensors", v.operands, operand);
          } else if constexpr (std::is_same_v<T, int64_t>) {
            return std::to_string(v);
          } else if constexpr (std::is_same_v<T, double>) {
            return FloatText(v);
          } else if constexpr (std::is_same_v<T, bool>) {
            return v ? "true" : "false";
          } else if constexpr (std::is_same_v<T, std::string>) {
            return Quoted(v);
          } else if constexpr (std::is_same_v<T, Dims>) {
            return v.empty() ? "ints[]" : DimsText(v);
          } else if constexpr (std::is_same_v<T, std::vector<double>>) {
            return ListText("floats", v, FloatText);
          } else if constexpr (std::is_same_v<T, std::vector<bool>>) {
            return ListText("bools", v, [](bool b) { return std::string(b ? "true" : "false"); });
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            return ListText("strings", v, [](const std::string& s) { return Quoted(s); });
          } else if constexpr (std::is_same_v<T, DType>) {
            return std::string(Name(v));
          } else if constexpr (std::is_same_v<T, DeviceArg>) {
            return "device(" + Quoted(v.type) + ')';
          } else if constexpr (std::is_same_v<T, LayoutArg>) {
            return "layout(" + Quoted(v.name) + ')';
          } else if constexpr (std::is_same_v<T, MemoryFormatArg>) {
            return "memory_format(" + Quoted(v.name) + ')';
          } else {
            return "complex(" + FloatText(v.real()) + ", " + FloatText(v.imag()) + ')';
          }
        },
        value);
  }

  const Graph& graph_;
  const PrintOptions options_;
  std::vector<ValueId> numbers_;
  ValueId next_ = 0;
  std::string out_;
};

}  // namespace

std::string Print(const Graph& graph, const PrintOptions& options) { return Printer(graph, options).PrintGraph(); }

std::string PrintNode(const Graph& graph, NodeId id) {
  PrintOptions options;
  options.raw_ids = true;
  return Printer(graph, options).PrintOne(id);
}

}  // namespace stepone::ir
