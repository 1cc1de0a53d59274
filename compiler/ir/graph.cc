#include "compiler/ir/graph.h"

#include <algorithm>

namespace stepone::ir {
namespace {

struct OpRow {
  std::string_view name;
  int operands;
  OpKind kind;
};

constexpr OpRow kOps[] = {
#define STEPONE_OP(enumerator, name, operands, kind) {name, operands, OpKind::kind},
#include "compiler/ir/ops.def"
#undef STEPONE_OP
};

const OpRow& Row(Op op) { return kOps[static_cast<size_t>(op)]; }

// Whether leaving the node out could be noticed when nobody uses its results.
bool MustRun(const Node& node) {
  return node.call != nullptr && (node.call->uses_rng || !node.call->mutated_operands.empty());
}

}  // namespace

std::string_view Name(Op op) { return Row(op).name; }
OpKind KindOf(Op op) { return Row(op).kind; }
int NumOperands(Op op) { return Row(op).operands; }

std::optional<Op> OpFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(kOps); ++i) {
    if (kOps[i].name == name) return static_cast<Op>(i);
  }
  return std::nullopt;
}

bool Call::effects() const {
  return uses_rng || !mutated_operands.empty() ||
         std::any_of(result_aliases.begin(), result_aliases.end(), [](int32_t operand) { return operand >= 0; });
}

const ArgumentValue* Call::Find(std::string_view name) const {
  for (const Argument& argument : arguments) {
    if (argument.name == name) return &argument.value;
  }
  return nullptr;
}

ValueId Graph::AddValue(TensorType type, std::string name) {
  Value value;
  value.type = std::move(type);
  value.name = std::move(name);
  values_.push_back(std::move(value));
  return num_values() - 1;
}

NodeId Graph::AddNode(Op op, std::vector<ValueId> operands, std::vector<TensorType> results, Attrs attrs,
                      std::vector<std::string> sources) {
  const NodeId id = num_nodes();
  Node node;
  node.op = op;
  node.operands = std::move(operands);
  node.attrs = std::move(attrs);
  node.sources = std::move(sources);
  for (TensorType& type : results) {
    const ValueId value = AddValue(std::move(type));
    values_[value].producer = id;
    values_[value].result = static_cast<int32_t>(node.results.size());
    node.results.push_back(value);
  }
  nodes_.push_back(std::move(node));
  order_.push_back(id);
  return id;
}

ValueId Graph::Add(Op op, std::vector<ValueId> operands, TensorType result, Attrs attrs,
                   std::vector<std::string> sources) {
  std::vector<TensorType> results;
  results.push_back(std::move(result));
  return nodes_[AddNode(op, std::move(operands), std::move(results), std::move(attrs), std::move(sources))].results[0];
}

void Graph::SetResultsUsed(NodeId id, const std::vector<bool>& used) {
  std::vector<ValueId> results(used.size(), kNoValue);
  size_t next = 0;
  for (size_t i = 0; i < used.size(); ++i) {
    if (!used[i]) continue;
    results[i] = nodes_[id].results[next++];
    values_[results[i]].result = static_cast<int32_t>(i);
  }
  nodes_[id].results = std::move(results);
}

void Graph::ReplaceUses(ValueId from, ValueId to) {
  for (NodeId id : order_) {
    for (ValueId& operand : nodes_[id].operands) {
      if (operand == from) operand = to;
    }
  }
  for (Output& output : outputs) {
    if (output.value == from) output.value = to;
  }
}

std::vector<std::vector<NodeId>> Graph::Users() const {
  std::vector<std::vector<NodeId>> users(values_.size());
  for (NodeId id : order_) {
    for (ValueId operand : nodes_[id].operands) {
      if (operand == kNoValue) continue;
      std::vector<NodeId>& list = users[operand];
      if (list.empty() || list.back() != id) list.push_back(id);
    }
  }
  return users;
}

bool Graph::RemoveDead() {
  std::vector<bool> used(values_.size(), false);
  for (const Output& output : outputs) {
    if (output.value != kNoValue) used[output.value] = true;
  }
  std::vector<NodeId> kept;
  kept.reserve(order_.size());
  for (size_t i = order_.size(); i-- > 0;) {
    const Node& node = nodes_[order_[i]];
    const bool needed = MustRun(node) || std::any_of(node.results.begin(), node.results.end(),
                                                     [&](ValueId value) { return value != kNoValue && used[value]; });
    if (!needed) continue;
    for (ValueId operand : node.operands) {
      if (operand != kNoValue) used[operand] = true;
    }
    kept.push_back(order_[i]);
  }
  const bool changed = kept.size() != order_.size();
  std::reverse(kept.begin(), kept.end());
  order_ = std::move(kept);
  return changed;
}

int64_t IntAttr(const Node& node, std::string_view name) { return std::get<int64_t>(node.attrs.find(name)->second); }

double FloatAttr(const Node& node, std::string_view name) { return std::get<double>(node.attrs.find(name)->second); }

const Dims& DimsAttr(const Node& node, std::string_view name) { return std::get<Dims>(node.attrs.find(name)->second); }

int64_t IntAttrOr(const Node& node, std::string_view name, int64_t missing) {
  const auto found = node.attrs.find(name);
  return found == node.attrs.end() ? missing : std::get<int64_t>(found->second);
}

}  // namespace stepone::ir
