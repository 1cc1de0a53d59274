#include "compiler/loops/normalize.h"

#include <map>
#include <optional>
#include <utility>

#include "compiler/loops/layout.h"

namespace stepone::loops {

using ir::Dims;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::OpKind;
using ir::ValueId;

bool CanNest(const Dims& from, const Dims& to) {
  size_t f = from.size(), t = to.size();
  int64_t a = 1, b = 1;  // what is left of the current dim on each side
  for (;;) {
    while (a == 1 && f > 0) a = from[--f];
    while (b == 1 && t > 0) b = to[--t];
    if (a == 1 || b == 1) return a == b;
    if (a % b == 0) {
      a /= b;
      b = 1;
    } else if (b % a == 0) {
      b /= a;
      a = 1;
    } else {
      return false;
    }
  }
}

namespace {

class Normalizer {
 public:
  Normalizer(ir::Graph graph, const std::set<ValueId>& copied, std::vector<ValueId>* pinned)
      : graph_(std::move(graph)), copied_(copied), pinned_(*pinned) {
    graph_.RemoveDead();
  }

  ir::Graph Run() {
    const std::vector<NodeId> before = graph_.order();
    for (NodeId id : before) {
      Visit(id);
      order_.push_back(id);
    }
    for (ir::Output& output : graph_.outputs) {
      if (output.value != ir::kNoValue) output.value = InMemory(output.value);
    }
    graph_.set_order(std::move(order_));
    return std::move(graph_);
  }

 private:
  void Visit(NodeId id) {
    const Op op = graph_.node(id).op;
    if (op == Op::kAten) {
      for (size_t i = 0; i < graph_.node(id).operands.size(); ++i) {
        const ValueId operand = graph_.node(id).operands[i];
        if (operand != ir::kNoValue) SetOperand(id, i, InMemory(operand));
      }
    } else if (op == Op::kTake || op == Op::kGather) {
      const ValueId table = graph_.node(id).operands[0];
      const bool view = BaseOf(graph_, table) != table;
      if ((op == Op::kTake || view) && !StridedAccess(graph_, table)) SetOperand(id, 0, Copy(table, false));
    } else if (ir::KindOf(op) == OpKind::kView) {
      const ValueId operand = graph_.node(id).operands[0];
      const bool nests = op != Op::kReshape || StridedAccess(graph_, graph_.node(id).results[0]) ||
                         CanNest(graph_.type(operand).sizes, graph_.type(graph_.node(id).results[0]).sizes);
      if (!nests || copied_.count(operand) > 0) {
        SetOperand(id, 0, Copy(operand, true));
        pinned_.push_back(graph_.node(id).operands[0]);
      }
    } else if (ir::KindOf(op) == OpKind::kReduction) {
      Node& node = graph_.node(id);
      if (graph_.type(node.operands[0]).NumElements() == 0) {
        MakeIdentity(node);
      } else if (graph_.type(node.operands[0]).NumElements() == graph_.type(node.results[0]).NumElements()) {
        MakeTrivial(node);
      }
    }
  }

  void SetOperand(NodeId id, size_t i, ValueId value) { graph_.node(id).operands[i] = value; }

  // `value` or a value with the same elements that has its traced strides.
  ValueId InMemory(ValueId value) {
    const ir::TensorType& type = graph_.type(value);
    if (!type.plain || !ir::IsFusable(type.dtype)) return value;
    const std::optional<Strided> access = StridedAccess(graph_, value);
    if (access && (SameStrides(type.sizes, access->strides, type.strides) || !IsDense(type))) return value;
    const auto [at, added] = in_memory_.emplace(value, ir::kNoValue);
    if (added) at->second = CopyUpstream(value);
    return at->second;
  }

  // A copy of the first value on the way of views to `value` from which strides lead on, and those views of the copy:
  // so that one copy serves several views (a matrix and its transpose, say).
  ValueId CopyUpstream(ValueId value) {
    std::vector<NodeId> views;  // from `value` back to the base
    for (ValueId at = value; at != BaseOf(graph_, value); at = graph_.node(views.back()).operands[0]) {
      views.push_back(graph_.value(at).producer);
    }
    const ir::TensorType type = graph_.type(value);
    for (size_t i = views.size(); i-- > 1;) {
      const ValueId root = graph_.node(views[i]).results[0];
      const ir::TensorType& root_type = graph_.type(root);
      if (root_type.NumElements() != type.NumElements() || !IsDense(root_type)) continue;
      const std::optional<Strided> access = StridedFrom(graph_, value, root, root_type.strides);
      if (!access || !SameStrides(type.sizes, access->strides, type.strides)) continue;
      ValueId result = Copy(root, false);
      while (i-- > 0) {
        const Node view = graph_.node(views[i]);
        result = graph_.Add(view.op, {result}, graph_.type(view.results[0]), view.attrs, view.sources);
        order_.push_back(graph_.value(result).producer);
      }
      return result;
    }
    return Copy(value, false);
  }

  // In memory with contiguous strides, or with the traced ones if they are dense.
  ValueId Copy(ValueId value, bool contiguous) {
    const auto [at, added] = copies_.emplace(std::pair(value, contiguous), ir::kNoValue);
    if (!added) return at->second;
    ir::TensorType type = graph_.type(value);
    if (contiguous || !IsDense(type)) type = ir::Contiguous(type.dtype, type.sizes);
    const NodeId producer = graph_.value(value).producer;
    std::vector<std::string> sources;
    if (producer != ir::kNoNode) sources = graph_.node(producer).sources;
    at->second = graph_.Add(Op::kCopy, {value}, std::move(type), {}, std::move(sources));
    order_.push_back(graph_.value(at->second).producer);
    return at->second;
  }

  static void MakeIdentity(Node& node) {
    const bool one = node.op == Op::kProd || node.op == Op::kAll;
    node.op = Op::kFull;
    node.operands.clear();
    node.attrs = {{"value", ir::Attr(int64_t{one ? 1 : 0})}};
  }

  // Every reduced dim has size 1.
  static void MakeTrivial(Node& node) {
    node.attrs.clear();
    if (node.op == Op::kArgMax || node.op == Op::kArgMin) {
      node.op = Op::kFull;
      node.operands.clear();
      node.attrs = {{"value", ir::Attr(int64_t{0})}};
    } else {
      node.op = Op::kReshape;
    }
  }

  ir::Graph graph_;
  const std::set<ValueId>& copied_;
  std::vector<ValueId>& pinned_;
  std::vector<NodeId> order_;
  std::map<std::pair<ValueId, bool>, ValueId> copies_;
  std::map<ValueId, ValueId> in_memory_;
};

}  // namespace

ir::Graph Normalize(const ir::Graph& graph, const std::set<ValueId>& copied, std::vector<ValueId>* pinned) {
  return Normalizer(graph, copied, pinned).Run();
}

}  // namespace stepone::loops
