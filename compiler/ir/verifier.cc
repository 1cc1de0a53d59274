#include "compiler/ir/verifier.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compiler/ir/primitive_rules.h"
#include "compiler/ir/text.h"
#include "proto/str_cat.h"

namespace stepone::ir {
namespace {

class Verifier {
 public:
  Verifier(const Graph& graph, Stage stage) : graph_(graph), stage_(stage) {}

  std::optional<Violation> Run() {
    defined_.assign(graph_.num_values(), false);
    CheckSources();
    for (const NodeId id : graph_.order()) {
      if (violation_) break;
      if (id < 0 || id >= graph_.num_nodes()) {
        Fail("graph", "node-id", StrCat("node ", id, " in the order, of ", graph_.num_nodes()));
        break;
      }
      CheckNode(id);
    }
    if (!violation_) CheckOutputs();
    return std::move(violation_);
  }

 private:
  void Fail(std::string node, std::string_view rule, std::string message) {
    if (!violation_) violation_ = Violation{std::move(node), std::string(rule), std::move(message)};
  }

  void FailNode(NodeId id, std::string_view rule, std::string_view message) {
    if (violation_) return;
    const Node& node = graph_.node(id);
    std::string text = PrintNode(graph_, id);
    std::string name = node.sources.empty() ? text : node.sources[0];
    Fail(std::move(name), rule, StrCat(message, " in: ", text));
  }

  bool InRange(ValueId value) const { return value >= 0 && value < graph_.num_values(); }

  // Empty when the type is sane.
  static std::string_view TypeFault(const TensorType& type) {
    if (type.strides.size() != type.sizes.size()) return "numbers of sizes and strides differ";
    const auto negative = [](int64_t n) { return n < 0; };
    if (std::any_of(type.sizes.begin(), type.sizes.end(), negative)) return "a size is negative";
    if (std::any_of(type.strides.begin(), type.strides.end(), negative)) return "a stride is negative";
    return {};
  }

  void DefineSource(ValueId value, const std::string& where) {
    if (!InRange(value)) return Fail(where, "value-id", StrCat("value ", value, " of ", graph_.num_values()));
    if (graph_.value(value).producer != kNoNode || defined_[value]) {
      return Fail(where, "redefined", StrCat("value ", value, " is defined elsewhere, too"));
    }
    defined_[value] = true;
    if (const auto fault = TypeFault(graph_.type(value)); !fault.empty()) Fail(where, "type", std::string(fault));
  }

  void CheckSources() {
    if (graph_.input_numbers.size() != graph_.inputs.size()) {
      return Fail("graph", "input", "numbers of inputs and of input numbers differ");
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const bool number = graph_.inputs[i] == kNoValue;
      if (number != graph_.input_numbers[i].has_value()) {
        return Fail(StrCat("input ", i), "input", "neither a value nor a number, or both");
      }
      if (!number) DefineSource(graph_.inputs[i], StrCat("input ", i));
    }
    for (size_t i = 0; i < graph_.constants.size() && !violation_; ++i) {
      const std::string where = StrCat("constant ", i);
      DefineSource(graph_.constants[i].value, where);
      if (violation_) return;
      const TensorType& type = graph_.type(graph_.constants[i].value);
      const int64_t bytes = type.NumElements() * ByteSize(type.dtype);
      if (bytes != static_cast<int64_t>(graph_.constants[i].data.size())) {
        Fail(where, "constant", StrCat(graph_.constants[i].data.size(), " bytes of data, the type has ", bytes));
      }
    }
  }

  void CheckNode(NodeId id) {
    const Node& node = graph_.node(id);
    for (const ValueId operand : node.operands) {
      if (!InRange(operand)) return FailNode(id, "value-id", StrCat("operand ", operand, " is no value"));
      if (!defined_[operand]) {
        return FailNode(id, "def-before-use", StrCat("operand %", operand, " is not defined above"));
      }
    }
    for (size_t i = 0; i < node.results.size(); ++i) {
      const ValueId result = node.results[i];
      if (result == kNoValue && node.op == Op::kAten) continue;
      if (!InRange(result)) return FailNode(id, "value-id", StrCat("result ", i, " is no value"));
      const Value& value = graph_.value(result);
      if (defined_[result] || value.producer != id || value.result != static_cast<int32_t>(i)) {
        return FailNode(id, "redefined", StrCat("result %", result, " belongs to another node, too"));
      }
      defined_[result] = true;
      if (const auto fault = TypeFault(value.type); !fault.empty()) return FailNode(id, "type", fault);
    }
    if ((node.op == Op::kAten) != (node.call != nullptr)) return FailNode(id, "call", "extern nodes have a call");
    if (node.op == Op::kAten) {
      CheckCall(id, node);
    } else if (stage_ == Stage::kImported) {
      FailNode(id, "stage", "a primitive before decomposition");
    } else if (const PrimitiveFault fault = CheckPrimitive(graph_, node); !fault.rule.empty()) {
      FailNode(id, fault.rule, fault.message);
    }
  }

  // Operands are numbered in the order in which the arguments mention them.
  void CheckCall(NodeId id, const Node& node) {
    int32_t next = 0;
    bool in_order = true;
    for (const Argument& argument : node.call->arguments) {
      if (const auto* one = std::get_if<OperandRef>(&argument.value)) in_order &= one->operand == next++;
      if (const auto* list = std::get_if<OperandList>(&argument.value)) {
        for (const int32_t operand : list->operands) in_order &= operand == -1 || operand == next++;
      }
    }
    const auto operands = static_cast<int32_t>(node.operands.size());
    if (!in_order || next != operands) return FailNode(id, "call", "arguments and operands do not agree");
    if (node.call->result_aliases.size() != node.results.size()) {
      return FailNode(id, "aliases", "numbers of results and of their aliases differ");
    }
    const auto bad = [operands](int32_t operand) { return operand < -1 || operand >= operands; };
    const auto& aliases = node.call->result_aliases;
    const auto& mutated = node.call->mutated_operands;
    if (std::any_of(aliases.begin(), aliases.end(), bad) || std::any_of(mutated.begin(), mutated.end(), bad) ||
        std::count(mutated.begin(), mutated.end(), -1) > 0) {
      FailNode(id, "aliases", "an operand that the call does not have");
    }
  }

  void CheckOutputs() {
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      const Output& output = graph_.outputs[i];
      if (output.value == kNoValue) continue;
      const std::string where = StrCat("output ", i);
      if (!InRange(output.value)) return Fail(where, "value-id", StrCat("value ", output.value, " is no value"));
      if (!defined_[output.value]) {
        return Fail(where, "def-before-use", StrCat("value %", output.value, " is not defined"));
      }
      if (output.number) return Fail(where, "output", "both a value and a number");
    }
  }

  const Graph& graph_;
  const Stage stage_;
  std::vector<bool> defined_;
  std::optional<Violation> violation_;
};

}  // namespace

std::optional<Violation> Verify(const Graph& graph, Stage stage) { return Verifier(graph, stage).Run(); }

}  // namespace stepone::ir
