#include "server/graph_limits.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::server {
namespace {

#define RETURN_IF_ERROR(expression) \
  if (absl::Status status_ = (expression); !status_.ok()) return status_

bool IsIdentifier(absl::string_view text) {
  if (text.empty() || text.size() > 256 || absl::ascii_isdigit(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

int64_t BytesOf(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT64:
    case v1::DTYPE_INT64:
    case v1::DTYPE_COMPLEX64:
      return 8;
    case v1::DTYPE_FLOAT32:
    case v1::DTYPE_INT32:
      return 4;
    case v1::DTYPE_FLOAT16:
    case v1::DTYPE_BFLOAT16:
    case v1::DTYPE_INT16:
      return 2;
    case v1::DTYPE_INT8:
    case v1::DTYPE_UINT8:
    case v1::DTYPE_BOOL:
      return 1;
    case v1::DTYPE_COMPLEX128:
      return 16;
    default:
      return 0;
  }
}

class GraphChecker {
 public:
  GraphChecker(const v1::Graph& graph, const RequestLimits& limits) : graph_(graph), limits_(limits) {}

  absl::Status Check();

 private:
  absl::Status Fail(absl::string_view rule, absl::string_view message) const {
    return InvalidNode(node_, ToStd(rule), ToStd(message));
  }
  absl::Status Count(int64_t elements);
  absl::Status CheckSymbols();
  absl::Status CheckValues();
  absl::Status CheckTensorType(const v1::TensorType& type);
  absl::Status CheckSymInt(const v1::SymInt& value);
  absl::Status CheckExpression(absl::string_view& rest, int depth);
  absl::Status CheckInputsAndConstants();
  absl::Status CheckConstant(const v1::Constant& constant);
  absl::Status CheckNode(const v1::Node& node);
  absl::Status CheckArgument(const v1::Argument& argument);
  absl::Status CheckResults(const v1::Node& node);
  absl::Status CheckOutputs();
  absl::Status CheckText(absl::string_view text, absl::string_view what);
  absl::Status CheckNodeName(absl::string_view name, absl::string_view what);
  absl::Status Define(uint32_t value, absl::string_view what);
  absl::Status Use(uint32_t value, absl::string_view what);
  std::string ValueName(uint32_t value) const;

  const v1::Graph& graph_;
  const RequestLimits& limits_;
  absl::flat_hash_set<absl::string_view> symbols_;
  std::vector<bool> defined_;       // so far
  std::vector<bool> ever_defined_;  // by any node: tells a cycle from a dangling id
  std::string node_;                // what errors name
  int64_t elements_ = 0;
};

absl::Status GraphChecker::Count(int64_t elements) {
  elements_ += elements;
  if (elements_ <= limits_.max_elements) return absl::OkStatus();
  return Fail("too-many-elements",
              absl::StrCat("graph has more than ", limits_.max_elements, " arguments, sizes and list elements"));
}

absl::Status GraphChecker::CheckNodeName(absl::string_view name, absl::string_view what) {
  absl::Status status = CheckName(name, what, limits_);
  // The offending name is escaped in the message, and is no good as the node's name there.
  return status.ok() ? status : Fail("name", status.message());
}

absl::Status GraphChecker::CheckText(absl::string_view text, absl::string_view what) {
  if (text.size() > static_cast<size_t>(limits_.max_text_bytes)) {
    return Fail("text-too-long",
                absl::StrCat(what, " has ", text.size(), " bytes; the limit is ", limits_.max_text_bytes));
  }
  if (absl::StrContains(text, '\0')) return Fail("name", absl::StrCat(what, " holds a NUL"));
  return absl::OkStatus();
}

std::string GraphChecker::ValueName(uint32_t value) const {
  const std::string& name = graph_.values(static_cast<int>(value)).name();
  return name.empty() ? absl::StrCat("value ", value) : absl::StrCat("value ", value, " (", name, ")");
}

absl::Status GraphChecker::Define(uint32_t value, absl::string_view what) {
  if (value >= defined_.size()) {
    return Fail("undefined-value",
                absl::StrCat(what, " is value ", value, "; the graph has ", defined_.size(), " values"));
  }
  if (defined_[value]) return Fail("duplicate-definition", absl::StrCat(what, " defines ", ValueName(value), " again"));
  defined_[value] = true;
  return absl::OkStatus();
}

absl::Status GraphChecker::Use(uint32_t value, absl::string_view what) {
  if (value >= defined_.size()) {
    return Fail("undefined-value",
                absl::StrCat(what, " is value ", value, "; the graph has ", defined_.size(), " values"));
  }
  if (defined_[value]) return absl::OkStatus();
  if (ever_defined_[value]) {
    return Fail("cycle",
                absl::StrCat(what, " is ", ValueName(value), ", which is only defined by this node or a later one"));
  }
  return Fail("undefined-value", absl::StrCat(what, " is ", ValueName(value), ", which nothing defines"));
}

absl::Status GraphChecker::Check() {
  if (!v1::Role_IsValid(graph_.role()) || graph_.role() == v1::ROLE_UNSPECIFIED) {
    return Fail("unknown-role", absl::StrCat("role ", static_cast<int>(graph_.role()), " is none"));
  }
  if (graph_.nodes_size() > limits_.max_nodes) {
    return Fail("too-many-nodes",
                absl::StrCat("graph has ", graph_.nodes_size(), " nodes; the limit is ", limits_.max_nodes));
  }
  if (graph_.values_size() > limits_.max_values) {
    return Fail("too-many-values",
                absl::StrCat("graph has ", graph_.values_size(), " values; the limit is ", limits_.max_values));
  }
  defined_.assign(static_cast<size_t>(graph_.values_size()), false);
  ever_defined_ = defined_;
  for (const v1::Node& node : graph_.nodes()) {
    for (uint32_t result : node.results()) {
      if (result > 0 && result <= ever_defined_.size()) ever_defined_[result - 1] = true;
    }
  }
  RETURN_IF_ERROR(CheckSymbols());
  RETURN_IF_ERROR(CheckValues());
  RETURN_IF_ERROR(CheckInputsAndConstants());
  for (int i = 0; i < graph_.nodes_size(); ++i) {
    node_ = absl::StrCat("node ", i);
    RETURN_IF_ERROR(CheckNode(graph_.nodes(i)));
  }
  node_.clear();
  return CheckOutputs();
}

absl::Status GraphChecker::CheckSymbols() {
  RETURN_IF_ERROR(Count(graph_.symbols_size()));
  for (const v1::Symbol& symbol : graph_.symbols()) {
    if (!IsIdentifier(symbol.name())) {
      return Fail("symbol",
                  absl::StrCat("\"", absl::CHexEscape(symbol.name().substr(0, 64)), "\" is no name of a symbol"));
    }
    if (!symbols_.insert(symbol.name()).second)
      return Fail("symbol", absl::StrCat("symbol ", symbol.name(), " appears twice"));
    if (symbol.min() > symbol.hint() || symbol.hint() > symbol.max()) {
      return Fail("symbol", absl::StrCat("hint ", symbol.hint(), " of symbol ", symbol.name(), " is outside of [",
                                         symbol.min(), ", ", symbol.max(), "]"));
    }
  }
  return absl::OkStatus();
}

absl::Status GraphChecker::CheckValues() {
  for (int i = 0; i < graph_.values_size(); ++i) {
    const v1::Value& value = graph_.values(i);
    node_ = absl::StrCat("value ", i);
    RETURN_IF_ERROR(CheckNodeName(value.name(), "value's name"));
    switch (value.type_case()) {
      case v1::Value::kTensor:
        RETURN_IF_ERROR(CheckTensorType(value.tensor()));
        break;
      case v1::Value::kSymInt:
        RETURN_IF_ERROR(CheckSymInt(value.sym_int()));
        break;
      case v1::Value::kHostScalar:
        break;
      case v1::Value::TYPE_NOT_SET:
        return Fail("type", "value has no type");
    }
  }
  node_.clear();
  return absl::OkStatus();
}

absl::Status GraphChecker::CheckTensorType(const v1::TensorType& type) {
  if (!v1::DType_IsValid(type.dtype()) || type.dtype() == v1::DTYPE_UNSPECIFIED) {
    return Fail("unknown-dtype", absl::StrCat("dtype ", static_cast<int>(type.dtype()), " is none"));
  }
  if ((type.dtype() == v1::DTYPE_OTHER) == type.other_dtype().empty()) {
    return Fail("unknown-dtype", "other_dtype must be set for the dtype OTHER and for no other");
  }
  if (type.sizes_size() > limits_.max_dimensions) {
    return Fail("too-many-dimensions",
                absl::StrCat("tensor has ", type.sizes_size(), " dimensions; the limit is ", limits_.max_dimensions));
  }
  if (type.strides_size() != 0 && type.strides_size() != type.sizes_size()) {
    return Fail("type", absl::StrCat(type.sizes_size(), " sizes but ", type.strides_size(), " strides"));
  }
  RETURN_IF_ERROR(Count(type.sizes_size() + type.strides_size()));
  for (const v1::SymInt& size : type.sizes()) {
    RETURN_IF_ERROR(CheckSymInt(size));
    if (size.has_value() && size.value() < 0) return Fail("type", absl::StrCat("size ", size.value(), " is negative"));
  }
  for (const v1::SymInt& stride : type.strides()) RETURN_IF_ERROR(CheckSymInt(stride));
  if (type.has_storage_offset()) RETURN_IF_ERROR(CheckSymInt(type.storage_offset()));
  RETURN_IF_ERROR(CheckNodeName(type.other_dtype(), "dtype"));
  RETURN_IF_ERROR(CheckNodeName(type.layout(), "layout"));
  return CheckNodeName(type.device().type(), "device type");
}

absl::Status GraphChecker::CheckSymInt(const v1::SymInt& value) {
  if (!value.has_expr()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckText(value.expr(), "expression"));
  absl::string_view rest = value.expr();
  RETURN_IF_ERROR(CheckExpression(rest, 0));
  if (!absl::StripAsciiWhitespace(rest).empty()) {
    return Fail("expression",
                absl::StrCat("\"", absl::CHexEscape(value.expr().substr(0, 128)), "\" goes on after its end"));
  }
  return absl::OkStatus();
}

// expression := integer | symbol | "(" operator expression expression+ ")"
absl::Status GraphChecker::CheckExpression(absl::string_view& rest, int depth) {
  RETURN_IF_ERROR(Count(1));
  if (depth > limits_.max_expression_depth) return Fail("expression", "expression is nested too deeply");
  const auto next_token = [&rest]() -> absl::string_view {
    rest = absl::StripLeadingAsciiWhitespace(rest);
    size_t length = rest.find_first_of(" ()");
    if (length == 0) length = 1;
    absl::string_view token = rest.substr(0, length);
    rest.remove_prefix(token.size());
    return token;
  };
  const absl::string_view token = next_token();
  if (token == "(") {
    static constexpr absl::string_view kOperators[] = {"+", "-", "*", "//", "%", "max", "min"};
    const absl::string_view op = next_token();
    if (std::find(std::begin(kOperators), std::end(kOperators), op) == std::end(kOperators)) {
      return Fail("expression", absl::StrCat("\"", absl::CHexEscape(op.substr(0, 32)), "\" is no operator"));
    }
    for (int operands = 0;; ++operands) {
      rest = absl::StripLeadingAsciiWhitespace(rest);
      if (!rest.empty() && rest[0] == ')') {
        rest.remove_prefix(1);
        return operands >= 2 ? absl::OkStatus()
                             : Fail("expression", absl::StrCat("operator ", op, " has fewer than two operands"));
      }
      RETURN_IF_ERROR(CheckExpression(rest, depth + 1));
    }
  }
  int64_t number;
  if (absl::SimpleAtoi(token, &number)) return absl::OkStatus();
  if (symbols_.contains(token)) return absl::OkStatus();
  return Fail("expression", absl::StrCat("\"", absl::CHexEscape(token.substr(0, 32)),
                                         "\" is neither a number nor a symbol of the graph"));
}

absl::Status GraphChecker::CheckInputsAndConstants() {
  RETURN_IF_ERROR(Count(graph_.inputs_size() + graph_.constants_size() + graph_.static_inputs_size()));
  for (int i = 0; i < graph_.inputs_size(); ++i) RETURN_IF_ERROR(Define(graph_.inputs(i), absl::StrCat("input ", i)));
  for (uint32_t value : graph_.static_inputs()) {
    // Only inputs are defined so far.
    if (value >= defined_.size() || !defined_[value]) {
      return Fail("static-input", absl::StrCat("static input ", value, " is no input"));
    }
  }
  for (int i = 0; i < graph_.constants_size(); ++i) {
    node_ = absl::StrCat("constant ", i);
    RETURN_IF_ERROR(CheckConstant(graph_.constants(i)));
  }
  node_.clear();
  return absl::OkStatus();
}

absl::Status GraphChecker::CheckConstant(const v1::Constant& constant) {
  RETURN_IF_ERROR(Define(constant.value(), "constant"));
  const v1::Value& value = graph_.values(static_cast<int>(constant.value()));
  if (!value.has_tensor()) return Fail("constant-size", "a constant must be a tensor");
  const int64_t item_bytes = BytesOf(value.tensor().dtype());
  if (item_bytes == 0) return absl::OkStatus();  // a dtype whose size only the framework knows
  const int64_t limit = static_cast<int64_t>(limits_.max_request_bytes);
  int64_t bytes = item_bytes;
  for (const v1::SymInt& size : value.tensor().sizes()) {
    if (!size.has_value()) return Fail("constant-size", "a constant's sizes must be numbers");
    if (size.value() != 0 && bytes > limit / size.value())
      return Fail("constant-size", "a constant is larger than a request may be");
    bytes *= size.value();
  }
  if (static_cast<size_t>(bytes) != constant.data().size()) {
    return Fail("constant-size",
                absl::StrCat("constant holds ", constant.data().size(), " bytes; its type needs ", bytes));
  }
  return absl::OkStatus();
}

absl::Status GraphChecker::CheckNode(const v1::Node& node) {
  RETURN_IF_ERROR(CheckNodeName(node.name(), "node's name"));
  if (!node.name().empty()) node_ = node.name();
  const std::vector<absl::string_view> parts = absl::StrSplit(node.op(), '.');
  if (parts.size() != 3 || !std::all_of(parts.begin(), parts.end(), IsIdentifier)) {
    return Fail("op-name", absl::StrCat("op \"", absl::CHexEscape(node.op().substr(0, 64)),
                                        "\" is not of the form namespace.name.overload"));
  }
  if (node.diagnostics().size() > static_cast<size_t>(limits_.max_text_bytes)) {
    return Fail("text-too-long", absl::StrCat("diagnostics have ", node.diagnostics().size(), " bytes; the limit is ",
                                              limits_.max_text_bytes));
  }
  RETURN_IF_ERROR(
      Count(node.arguments_size() + node.results_size() + node.result_aliases_size() + node.mutated_values_size()));
  for (const v1::Argument& argument : node.arguments()) RETURN_IF_ERROR(CheckArgument(argument));
  for (uint32_t value : node.mutated_values()) RETURN_IF_ERROR(Use(value, "mutated value"));
  return CheckResults(node);
}

absl::Status GraphChecker::CheckResults(const v1::Node& node) {
  if (node.result_aliases_size() != 0 && node.result_aliases_size() != node.results_size()) {
    return Fail("alias", absl::StrCat(node.results_size(), " results but ", node.result_aliases_size(), " aliases"));
  }
  // Before the results are defined, so that a result can't be its own alias.
  for (uint32_t alias : node.result_aliases()) {
    if (alias != 0) RETURN_IF_ERROR(Use(alias - 1, "alias of a result"));
  }
  for (uint32_t result : node.results()) {
    if (result != 0) RETURN_IF_ERROR(Define(result - 1, "result"));
  }
  return absl::OkStatus();
}

absl::Status GraphChecker::CheckArgument(const v1::Argument& argument) {
  if (!IsIdentifier(argument.name())) {
    return Fail("name",
                absl::StrCat("\"", absl::CHexEscape(argument.name().substr(0, 64)), "\" is no name of an argument"));
  }
  const std::string what = absl::StrCat("argument ", argument.name());
  switch (argument.kind_case()) {
    case v1::Argument::kValue:
      return Use(argument.value(), what);
    case v1::Argument::kValueList: {
      const v1::ValueList& list = argument.value_list();
      if (list.present_size() != 0 && list.present_size() != list.values_size()) {
        return Fail("type", absl::StrCat(what, " has ", list.values_size(), " values but ", list.present_size(),
                                         " presence bits"));
      }
      RETURN_IF_ERROR(Count(list.values_size()));
      for (int i = 0; i < list.values_size(); ++i) {
        if (list.present_size() == 0 || list.present(i)) RETURN_IF_ERROR(Use(list.values(i), what));
      }
      return absl::OkStatus();
    }
    case v1::Argument::kIntValue:
      return CheckSymInt(argument.int_value());
    case v1::Argument::kIntList:
      RETURN_IF_ERROR(Count(argument.int_list().values_size()));
      for (const v1::SymInt& value : argument.int_list().values()) RETURN_IF_ERROR(CheckSymInt(value));
      return absl::OkStatus();
    case v1::Argument::kFloatList:
      return Count(argument.float_list().values_size());
    case v1::Argument::kBoolList:
      return Count(argument.bool_list().values_size());
    case v1::Argument::kStringValue:
      return CheckText(argument.string_value(), what);
    case v1::Argument::kStringList:
      RETURN_IF_ERROR(Count(argument.string_list().values_size()));
      for (const std::string& text : argument.string_list().values()) RETURN_IF_ERROR(CheckText(text, what));
      return absl::OkStatus();
    case v1::Argument::kDtype:
      if (!v1::DType_IsValid(argument.dtype())) return Fail("unknown-dtype", absl::StrCat(what, " is no dtype"));
      return absl::OkStatus();
    case v1::Argument::kDevice:
      return CheckNodeName(argument.device().type(), what);
    case v1::Argument::kLayout:
      return CheckNodeName(argument.layout(), what);
    case v1::Argument::kMemoryFormat:
      return CheckNodeName(argument.memory_format(), what);
    case v1::Argument::kFloatValue:
    case v1::Argument::kBoolValue:
    case v1::Argument::kComplexValue:
    case v1::Argument::KIND_NOT_SET:
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status GraphChecker::CheckOutputs() {
  RETURN_IF_ERROR(Count(graph_.outputs_size()));
  for (int i = 0; i < graph_.outputs_size(); ++i) {
    const v1::Output& output = graph_.outputs(i);
    if (output.has_value()) RETURN_IF_ERROR(Use(output.value(), absl::StrCat("output ", i)));
    if (output.has_int_value()) RETURN_IF_ERROR(CheckSymInt(output.int_value()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGraph(const v1::Graph& graph, const RequestLimits& limits) {
  return GraphChecker(graph, limits).Check();
}

}  // namespace stepone::server
