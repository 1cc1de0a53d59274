#include "compiler/passes/rewriter.h"

#include <vector>

namespace stepone::passes {
namespace {

using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::OpKind;
using ir::ValueId;

// How a value's memory is seen from outside of kernels.
struct Seen {
  bool output = false;
  bool by_call = false;
  bool mutated = false;  // by a call
};

class Walk {
 public:
  explicit Walk(ir::Graph& graph) : graph_(graph), seen_(graph.num_values()), replacements_(graph.num_values()) {
    for (ValueId value = 0; value < graph.num_values(); ++value) replacements_[value] = value;
    for (const ir::Output& output : graph.outputs) {
      if (output.value != kNoValue) seen_[output.value].output = true;
    }
    for (const NodeId id : graph.order()) {
      const Node& node = graph.node(id);
      if (node.call == nullptr) continue;
      for (const ValueId operand : node.operands) seen_[operand].by_call = true;
      for (const int32_t operand : node.call->mutated_operands) seen_[node.operands[operand]].mutated = true;
    }
  }

  bool Run(const std::function<Rewrite(ir::Graph&, Node&)>& visit) {
    for (const NodeId id : graph_.order()) {
      Node& node = graph_.node(id);
      for (ValueId& operand : node.operands) Update(operand);
      if (node.call != nullptr) continue;
      while (true) {
        const Rewrite rewrite = visit(graph_, node);
        changed_ |= rewrite.changed;
        if (rewrite.stands_for != kNoValue) Replace(node.results[0], rewrite.stands_for);
        if (!rewrite.changed || rewrite.stands_for != kNoValue) break;
      }
    }
    for (ir::Output& output : graph_.outputs) {
      if (output.value != kNoValue) Update(output.value);
    }
    return changed_;
  }

 private:
  void Update(ValueId& use) {
    changed_ |= replacements_[use] != use;
    use = replacements_[use];
  }

  // Made by a kernel for itself, so that its layout is ours to choose and its memory nobody else's.
  bool IsFresh(ValueId value) const {
    const NodeId producer = graph_.value(value).producer;
    if (producer == ir::kNoNode) return false;
    const OpKind kind = KindOf(graph_.node(producer).op);
    return kind != OpKind::kView && kind != OpKind::kExtern && kind != OpKind::kSeed;
  }

  // Where that may be; a replaced value without uses is no change of the graph.
  void Replace(ValueId from, ValueId to) {
    const Seen& source = seen_[from];
    Seen& target = seen_[to];
    if (source.mutated || target.mutated) return;
    if (source.output && (target.output || !IsFresh(to))) return;
    const auto& strides = graph_.type(from).strides;
    if ((source.output || source.by_call) && strides != graph_.type(to).strides) {
      if (target.output || target.by_call || !IsFresh(to)) return;
      graph_.value(to).type.strides = strides;
      changed_ = true;
    }
    target.output |= source.output;
    target.by_call |= source.by_call;
    replacements_[from] = to;
  }

  ir::Graph& graph_;
  std::vector<Seen> seen_;
  std::vector<ValueId> replacements_;
  bool changed_ = false;
};

}  // namespace

bool RewriteNodes(ir::Graph& graph, const std::function<Rewrite(ir::Graph&, Node&)>& visit) {
  return Walk(graph).Run(visit);
}

}  // namespace stepone::passes
