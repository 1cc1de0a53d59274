#include "compiler/import/import_graph.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/verifier.h"
#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::import {
namespace {

using ir::DType;
using ir::kNoValue;
using ir::TensorType;
using ir::ValueId;

constexpr int kNotProduced = -1;
// No real tensor has more elements, and products of what passes do not overflow.
constexpr int64_t kMaxElements = int64_t{1} << 48;

// namespace.name.overload, each an identifier: what a dispatcher can hold.
bool IsOpName(std::string_view op) {
  int parts = 0;
  size_t start = 0;
  while (true) {
    const size_t end = std::min(op.find('.', start), op.size());
    if (end == start) return false;
    for (size_t i = start; i < end; ++i) {
      const char c = op[i];
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
      if (!letter && (i == start || c < '0' || c > '9')) return false;
    }
    ++parts;
    if (end == op.size()) return parts == 3;
    start = end + 1;
  }
}

class Importer {
 public:
  explicit Importer(const v1::Graph& request) : request_(request) {}

  absl::StatusOr<ir::Graph> Run() {
    if (absl::Status status = Build(); !status.ok()) return status;
    if (const auto violation = ir::Verify(graph_, ir::Stage::kImported)) {
      return InvalidNode(violation->node, violation->rule, violation->message);
    }
    return std::move(graph_);
  }

 private:
  // What the importer knows about one of the request's values.
  struct Known {
    ValueId value = kNoValue;
    std::optional<int64_t> number;
    bool defined = false;
  };

  absl::Status Build() {
    const int role = request_.role();
    if (role < v1::ROLE_FORWARD || role > v1::ROLE_INFERENCE) {
      return InvalidNode("graph", "role", StrCat("unknown role ", role));
    }
    graph_.role = static_cast<ir::Role>(role);
    known_.resize(request_.values_size());
    if (absl::Status status = ReadInputs(); !status.ok()) return status;
    if (absl::Status status = ReadConstants(); !status.ok()) return status;
    if (absl::Status status = FindProducers(); !status.ok()) return status;
    for (int i = 0; i < request_.nodes_size(); ++i) {
      if (absl::Status status = ReadNode(i); !status.ok()) return status;
    }
    return ReadOutputs();
  }

  std::string NodeName(int i) const {
    const std::string& name = request_.nodes(i).name();
    return name.empty() ? StrCat("node ", i, " (", request_.nodes(i).op(), ")") : name;
  }

  absl::Status CheckIndex(uint32_t value, const std::string& where) const {
    if (value < static_cast<uint32_t>(request_.values_size())) return absl::OkStatus();
    return InvalidNode(where, "value-index", StrCat("value ", value, " of ", request_.values_size()));
  }

  static absl::StatusOr<int64_t> Number(const v1::SymInt& number, const std::string& where, std::string_view what) {
    switch (number.kind_case()) {
      case v1::SymInt::kValue:
        return number.value();
      case v1::SymInt::kExpr:
        return absl::UnimplementedError(StrCat("node '", where, "': ", what, " is the expression '", number.expr(),
                                               "': specialise the graph's symbols to numbers first"));
      default:
        return InvalidNode(where, "type", StrCat(what, " is neither a number nor an expression"));
    }
  }

  static absl::StatusOr<DType> ReadDType(int dtype, const std::string& where) {
    if (dtype >= v1::DTYPE_FLOAT64 && dtype <= v1::DTYPE_OTHER) return static_cast<DType>(dtype);
    return InvalidNode(where, "type", StrCat("unknown dtype ", dtype));
  }

  static absl::StatusOr<TensorType> ReadType(const v1::TensorType& tensor, const std::string& where) {
    TensorType type;
    const auto dtype = ReadDType(tensor.dtype(), where);
    if (!dtype.ok()) return dtype.status();
    type.dtype = *dtype;
    const bool strided = tensor.layout().empty() || tensor.layout() == "strided";
    type.plain = strided && type.dtype != DType::kOther && tensor.device().type() == "cpu";
    // Sizes of what is not plain describe nothing that the compiler may rely on.
    if (!type.plain) return type;
    if (tensor.strides_size() != tensor.sizes_size()) {
      return InvalidNode(where, "type", StrCat(tensor.sizes_size(), " sizes and ", tensor.strides_size(), " strides"));
    }
    int64_t elements = 1;
    for (int i = 0; i < tensor.sizes_size(); ++i) {
      const auto size = Number(tensor.sizes(i), where, "a size");
      if (!size.ok()) return size.status();
      const auto stride = Number(tensor.strides(i), where, "a stride");
      if (!stride.ok()) return stride.status();
      if (*size < 0) return InvalidNode(where, "type", StrCat("size ", *size, " of dim ", i, " is negative"));
      if (*stride < 0) return InvalidNode(where, "type", StrCat("stride ", *stride, " of dim ", i, " is negative"));
      if (*size > kMaxElements || *stride > kMaxElements ||
          (elements != 0 && *size != 0 && elements > kMaxElements / *size)) {
        return InvalidNode(where, "type", "the tensor is larger than any memory");
      }
      elements *= *size;
      type.sizes.push_back(*size);
      type.strides.push_back(*stride);
    }
    return type;
  }

  // Gives the request's value a place in the graph; numbers get none.
  absl::Status Define(uint32_t index, const std::string& where) {
    if (absl::Status status = CheckIndex(index, where); !status.ok()) return status;
    Known& known = known_[index];
    if (known.defined) return InvalidNode(where, "redefined", StrCat("value ", index, " is defined twice"));
    known.defined = true;
    const v1::Value& value = request_.values(index);
    switch (value.type_case()) {
      case v1::Value::kTensor: {
        auto type = ReadType(value.tensor(), where);
        if (!type.ok()) return type.status();
        types_.push_back(*std::move(type));
        return absl::OkStatus();
      }
      case v1::Value::kSymInt: {
        const auto number = Number(value.sym_int(), where, "a symbolic integer");
        if (!number.ok()) return number.status();
        known.number = *number;
        return absl::OkStatus();
      }
      case v1::Value::kHostScalar: {
        TensorType type;
        type.dtype = DType::kOther;
        type.plain = false;
        types_.push_back(std::move(type));
        return absl::OkStatus();
      }
      default:
        return InvalidNode(where, "type", StrCat("value ", index, " has no type"));
    }
  }

  // An input or constant; kNoValue for a number.
  absl::StatusOr<ValueId> DefineSource(uint32_t index, const std::string& where) {
    types_.clear();
    if (absl::Status status = Define(index, where); !status.ok()) return status;
    if (types_.empty()) return kNoValue;
    known_[index].value = graph_.AddValue(std::move(types_[0]), request_.values(index).name());
    return known_[index].value;
  }

  absl::Status ReadInputs() {
    for (int i = 0; i < request_.inputs_size(); ++i) {
      const auto value = DefineSource(request_.inputs(i), StrCat("input ", i));
      if (!value.ok()) return value.status();
      graph_.inputs.push_back(*value);
      graph_.input_numbers.push_back(known_[request_.inputs(i)].number);
    }
    return absl::OkStatus();
  }

  absl::Status ReadConstants() {
    for (int i = 0; i < request_.constants_size(); ++i) {
      const v1::Constant& constant = request_.constants(i);
      const std::string where = StrCat("constant ", i);
      const auto value = DefineSource(constant.value(), where);
      if (!value.ok()) return value.status();
      if (*value == kNoValue || !graph_.type(*value).plain) {
        return InvalidNode(where, "constant", "only a strided tensor on the CPU can be a constant");
      }
      const TensorType& type = graph_.type(*value);
      const int64_t bytes = type.NumElements() * ir::ByteSize(type.dtype);
      if (bytes != static_cast<int64_t>(constant.data().size())) {
        return InvalidNode(
            where, "constant",
            StrCat(constant.data().size(), " bytes of data for ", ToString(type), ", which has ", bytes));
      }
      if (!ir::IsContiguous(type)) return InvalidNode(where, "constant", "data is row-major, strides must be too");
      graph_.constants.push_back({*value, constant.data()});
    }
    return absl::OkStatus();
  }

  absl::Status FindProducers() {
    producers_.assign(request_.values_size(), kNotProduced);
    for (int i = 0; i < request_.nodes_size(); ++i) {
      for (const uint32_t result : request_.nodes(i).results()) {
        if (result == 0) continue;
        if (absl::Status status = CheckIndex(result - 1, NodeName(i)); !status.ok()) return status;
        if (producers_[result - 1] == kNotProduced) producers_[result - 1] = i;
      }
    }
    return absl::OkStatus();
  }

  template <typename Visit>
  static void VisitValues(const v1::Node& node, Visit visit) {
    for (const v1::Argument& argument : node.arguments()) {
      if (argument.kind_case() == v1::Argument::kValue) visit(argument.value());
      if (argument.kind_case() != v1::Argument::kValueList) continue;
      const v1::ValueList& list = argument.value_list();
      for (int i = 0; i < list.values_size(); ++i) {
        if (i < list.present_size() && list.present(i)) visit(list.values(i));
      }
    }
  }

  // Whether node `from` needs, by way of others, its own result.
  bool OnCycle(int from) const {
    std::vector<bool> seen(request_.nodes_size(), false);
    std::vector<int> stack = {from};
    while (!stack.empty()) {
      const int node = stack.back();
      stack.pop_back();
      bool found = false;
      VisitValues(request_.nodes(node), [&](uint32_t value) {
        if (value >= producers_.size() || producers_[value] == kNotProduced) return;
        const int producer = producers_[value];
        found |= producer == from;
        if (!seen[producer]) {
          seen[producer] = true;
          stack.push_back(producer);
        }
      });
      if (found) return true;
    }
    return false;
  }

  absl::Status CheckDefined(int node, uint32_t value) const {
    const std::string name = NodeName(node);
    if (absl::Status status = CheckIndex(value, name); !status.ok()) return status;
    if (known_[value].defined) return absl::OkStatus();
    if (producers_[value] == kNotProduced) {
      return InvalidNode(name, "def-before-use", StrCat("nothing defines value ", value));
    }
    if (OnCycle(node)) return InvalidNode(name, "cycle", "the node needs its own result");
    return InvalidNode(
        name, "def-before-use",
        StrCat("value ", value, " is the result of '", NodeName(producers_[value]), "', which comes later"));
  }

  absl::Status ReadNode(int index) {
    const v1::Node& node = request_.nodes(index);
    const std::string name = NodeName(index);
    if (!IsOpName(node.op())) {
      return InvalidNode(name, "op-name", StrCat("'", node.op(), "' is not namespace.name.overload"));
    }
    operands_.clear();
    auto call = std::make_shared<ir::Call>();
    call->op = node.op();
    call->results_are_list = node.results_are_list();
    call->uses_rng = node.uses_rng();
    for (const v1::Argument& argument : node.arguments()) {
      if (call->Find(argument.name()) != nullptr || argument.name().empty()) {
        return InvalidNode(name, "argument", StrCat("argument '", argument.name(), "' is given twice or has no name"));
      }
      auto value = ReadArgument(index, argument);
      if (!value.ok()) return value.status();
      call->arguments.push_back({argument.name(), *std::move(value)});
    }
    if (absl::Status status = ReadEffects(node, name, *call); !status.ok()) return status;
    return AddResults(node, name, std::move(call));
  }

  absl::Status ReadEffects(const v1::Node& node, const std::string& name, ir::Call& call) {
    call.result_aliases.assign(node.results_size(), -1);
    if (node.result_aliases_size() != 0 && node.result_aliases_size() != node.results_size()) {
      return InvalidNode(name, "aliases",
                         StrCat(node.result_aliases_size(), " aliases of ", node.results_size(), " results"));
    }
    for (int i = 0; i < node.result_aliases_size(); ++i) {
      if (node.result_aliases(i) == 0) continue;
      const auto operand = OperandOf(node.result_aliases(i) - 1, name, "aliases");
      if (!operand.ok()) return operand.status();
      call.result_aliases[i] = *operand;
    }
    for (const uint32_t value : node.mutated_values()) {
      const auto operand = OperandOf(value, name, "aliases");
      if (!operand.ok()) return operand.status();
      call.mutated_operands.push_back(*operand);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> OperandOf(uint32_t value, const std::string& name, std::string_view rule) const {
    if (absl::Status status = CheckIndex(value, name); !status.ok()) return status;
    const ValueId id = known_[value].value;
    for (size_t i = 0; id != kNoValue && i < operands_.size(); ++i) {
      if (operands_[i] == id) return static_cast<int32_t>(i);
    }
    return InvalidNode(name, rule, StrCat("value ", value, " is no argument of the call"));
  }

  absl::Status AddResults(const v1::Node& node, const std::string& name, std::shared_ptr<const ir::Call> call) {
    types_.clear();
    std::vector<bool> used;
    for (const uint32_t result : node.results()) {
      used.push_back(result != 0);
      if (result == 0) continue;
      if (absl::Status status = Define(result - 1, name); !status.ok()) return status;
      // A number that a call returns is what it was when the graph was traced: sizes are specialised.
      if (known_[result - 1].number) used.back() = false;
    }
    const ir::NodeId id = graph_.AddNode(ir::Op::kAten, operands_, std::move(types_), {}, {name});
    graph_.SetResultsUsed(id, used);
    graph_.node(id).call = std::move(call);
    for (int i = 0; i < node.results_size(); ++i) {
      if (!used[i]) continue;
      const ValueId value = graph_.node(id).results[i];
      known_[node.results(i) - 1].value = value;
      graph_.value(value).name = request_.values(node.results(i) - 1).name();
    }
    return absl::OkStatus();
  }

  // An operand, or the number that the value is.
  absl::StatusOr<ir::ArgumentValue> ReadValue(int node, uint32_t value) {
    if (absl::Status status = CheckDefined(node, value); !status.ok()) return status;
    if (known_[value].number) return ir::ArgumentValue(*known_[value].number);
    operands_.push_back(known_[value].value);
    return ir::ArgumentValue(ir::OperandRef{static_cast<int32_t>(operands_.size()) - 1});
  }

  absl::StatusOr<ir::ArgumentValue> ReadValueList(int node, const v1::Argument& argument) {
    const v1::ValueList& list = argument.value_list();
    const std::string name = NodeName(node);
    if (list.present_size() != list.values_size()) {
      return InvalidNode(name, "argument",
                         StrCat("list '", argument.name(), "' has ", list.values_size(), " values and ",
                                list.present_size(), " marks of presence"));
    }
    ir::OperandList operands;
    ir::Dims numbers;
    for (int i = 0; i < list.values_size(); ++i) {
      if (!list.present(i)) {
        operands.operands.push_back(-1);
        continue;
      }
      auto value = ReadValue(node, list.values(i));
      if (!value.ok()) return value.status();
      if (const auto* number = std::get_if<int64_t>(&*value)) {
        numbers.push_back(*number);
      } else {
        operands.operands.push_back(std::get<ir::OperandRef>(*value).operand);
      }
    }
    if (numbers.empty()) return ir::ArgumentValue(std::move(operands));
    if (operands.operands.empty()) return ir::ArgumentValue(std::move(numbers));
    return InvalidNode(name, "argument", StrCat("list '", argument.name(), "' mixes tensors and integers"));
  }

  absl::StatusOr<ir::ArgumentValue> ReadArgument(int node, const v1::Argument& argument) {
    using Value = ir::ArgumentValue;
    const std::string name = NodeName(node);
    switch (argument.kind_case()) {
      case v1::Argument::KIND_NOT_SET:
        return Value(ir::NoneArg{});
      case v1::Argument::kValue:
        return ReadValue(node, argument.value());
      case v1::Argument::kValueList:
        return ReadValueList(node, argument);
      case v1::Argument::kIntValue: {
        const auto number = Number(argument.int_value(), name, StrCat("argument '", argument.name(), "'"));
        if (!number.ok()) return number.status();
        return Value(*number);
      }
      case v1::Argument::kFloatValue:
        return Value(argument.float_value());
      case v1::Argument::kBoolValue:
        return Value(argument.bool_value());
      case v1::Argument::kStringValue:
        return Value(argument.string_value());
      case v1::Argument::kIntList: {
        ir::Dims numbers;
        for (const v1::SymInt& entry : argument.int_list().values()) {
          const auto number = Number(entry, name, StrCat("argument '", argument.name(), "'"));
          if (!number.ok()) return number.status();
          numbers.push_back(*number);
        }
        return Value(std::move(numbers));
      }
      case v1::Argument::kFloatList: {
        const auto& values = argument.float_list().values();
        return Value(std::vector<double>(values.begin(), values.end()));
      }
      case v1::Argument::kBoolList: {
        const auto& values = argument.bool_list().values();
        return Value(std::vector<bool>(values.begin(), values.end()));
      }
      case v1::Argument::kStringList: {
        const auto& values = argument.string_list().values();
        return Value(std::vector<std::string>(values.begin(), values.end()));
      }
      case v1::Argument::kDtype: {
        const auto dtype = ReadDType(argument.dtype(), name);
        if (!dtype.ok()) return dtype.status();
        return Value(*dtype);
      }
      case v1::Argument::kDevice:
        return Value(ir::DeviceArg{argument.device().type()});
      case v1::Argument::kLayout:
        return Value(ir::LayoutArg{argument.layout()});
      case v1::Argument::kMemoryFormat:
        return Value(ir::MemoryFormatArg{argument.memory_format()});
      case v1::Argument::kComplexValue:
        return Value(std::complex<double>(argument.complex_value().real(), argument.complex_value().imag()));
    }
    return InvalidNode(name, "argument", StrCat("argument '", argument.name(), "' is of an unknown kind"));
  }

  absl::Status ReadOutputs() {
    for (int i = 0; i < request_.outputs_size(); ++i) {
      const v1::Output& from = request_.outputs(i);
      const std::string where = StrCat("output ", i);
      ir::Output output;
      switch (from.kind_case()) {
        case v1::Output::kValue:
          if (absl::Status status = CheckIndex(from.value(), where); !status.ok()) return status;
          if (!known_[from.value()].defined) {
            return InvalidNode(where, "output", StrCat("nothing defines value ", from.value()));
          }
          output.value = known_[from.value()].value;
          output.number = known_[from.value()].number;
          break;
        case v1::Output::kIntValue: {
          const auto number = Number(from.int_value(), where, "an output");
          if (!number.ok()) return number.status();
          output.number = *number;
          break;
        }
        case v1::Output::kNone:
          break;
        default:
          return InvalidNode(where, "output", "neither a value, nor a number, nor none");
      }
      graph_.outputs.push_back(output);
    }
    return absl::OkStatus();
  }

  const v1::Graph& request_;
  ir::Graph graph_;
  std::vector<Known> known_;
  std::vector<int> producers_;     // per value: the first node that has it as a result
  std::vector<ValueId> operands_;  // of the node at hand
  std::vector<TensorType> types_;  // of what Define() defined since it was last cleared
};

}  // namespace

absl::StatusOr<ir::Graph> ImportGraph(const v1::Graph& request) { return Importer(request).Run(); }

}  // namespace stepone::import
