#include "compiler/loops/fusion_graph.h"

#include <algorithm>

#include "compiler/analysis/op_cost.h"
#include "compiler/loops/layout.h"

namespace stepone::loops {

using ir::Dims;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::OpKind;
using ir::ValueId;

std::optional<std::vector<IndexExpr>> ViewCoords(const ir::Graph& graph, const Node& view,
                                                 const std::vector<IndexExpr>& coords, const Dims& sizes,
                                                 Split* split) {
  *split = Split{};
  const Dims& from = graph.type(view.operands[0]).sizes;
  const Dims& to = graph.type(view.results[0]).sizes;
  switch (view.op) {
    case Op::kReshape:
      if (from == to) return coords;
      return ReshapeCoords(coords, to, from, sizes, split);
    case Op::kPermute: {
      const Dims& dims = ir::DimsAttr(view, "dims");
      std::vector<IndexExpr> result(dims.size());
      for (size_t i = 0; i < dims.size(); ++i) result[dims[i]] = coords[i];
      return result;
    }
    case Op::kExpand: {
      std::vector<IndexExpr> result = coords;
      for (size_t i = 0; i < from.size(); ++i) {
        if (from[i] == 1) result[i] = IndexExpr{};
      }
      return result;
    }
    case Op::kSlice: {
      std::vector<IndexExpr> result = coords;
      IndexExpr& at = result[ir::IntAttr(view, "dim")];
      at = AddConstant(Scale(at, ir::IntAttr(view, "step")), ir::IntAttr(view, "start"));
      return result;
    }
    case Op::kFlip: {
      std::vector<IndexExpr> result = coords;
      for (int64_t dim : ir::DimsAttr(view, "dims")) result[dim] = AddConstant(Scale(result[dim], -1), from[dim] - 1);
      return result;
    }
    default:
      return std::nullopt;
  }
}

namespace {

constexpr int64_t kExpensiveCost = 20;

int64_t CostOf(Op op) { return analysis::IsExpensive(op) ? kExpensiveCost : 1; }

bool IsView(const ir::Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  return producer != ir::kNoNode && ir::KindOf(graph.node(producer).op) == OpKind::kView;
}

Dims DomainOf(const ir::Graph& graph, const Node& node, ItemKind kind) {
  if (kind == ItemKind::kParts) return graph.type(node.operands[0]).sizes;
  if (ir::KindOf(node.op) == OpKind::kReduction || node.op == Op::kTakeGrad) return graph.type(node.operands[0]).sizes;
  if (node.op == Op::kScatterAdd) return graph.type(node.operands[2]).sizes;
  return graph.type(node.results[0]).sizes;
}

// Finds an item's atoms and leaves: walks from the node through views and inlined nodes.
class LeafFinder {
 public:
  LeafFinder(const FusionGraph& fusion, Item& item) : fusion_(fusion), graph_(fusion.graph()), item_(item) {}

  void Run() {
    if (std::count(item_.domain.begin(), item_.domain.end(), 0) > 0) return RunEmpty();
    item_.atoms.clear();
    item_.coords.assign(item_.domain.size(), IndexExpr{});
    for (size_t i = 0; i < item_.domain.size(); ++i) {
      if (item_.domain[i] == 1) continue;
      item_.coords[i] = DimIndex(static_cast<int32_t>(item_.atoms.size()));
      item_.atoms.push_back(item_.domain[i]);
    }
    if (item_.kind == ItemKind::kCombine) return;
    for (;;) {
      item_.leaves.clear();
      split_ = Split{};
      VisitItemOperands();
      if (split_.dim < 0) return;
      ApplySplit(split_, &item_.atoms);
      for (IndexExpr& expr : item_.coords) expr = ApplySplit(expr, split_);
    }
  }

 private:
  using Coords = std::vector<IndexExpr>;

  // No point at all: what is read only matters for the order of steps.
  void RunEmpty() {
    item_.atoms = {0};
    item_.coords.assign(item_.domain.size(), IndexExpr{});
    if (item_.kind != ItemKind::kCombine) VisitOperands(graph_.node(item_.node), {}, false);
  }

  void Visit(ValueId value, Coords coords, bool direct) {
    while (IsView(graph_, value)) {
      const Node& view = graph_.node(graph_.value(value).producer);
      if (direct) {
        Split split;
        std::optional<Coords> inner = ViewCoords(graph_, view, coords, item_.atoms, &split);
        if (!inner && split.dim >= 0) {
          split_ = split;
          return;
        }
        direct = inner.has_value();
        if (direct) coords = std::move(*inner);
      }
      value = view.operands[0];
    }
    const NodeId producer = graph_.value(value).producer;
    if (producer != ir::kNoNode && fusion_.Inlined(producer)) {
      VisitOperands(graph_.node(producer), coords, direct);
      return;
    }
    Leaf leaf{value, direct, {}};
    if (direct) leaf.coords = std::move(coords);
    if (std::find(item_.leaves.begin(), item_.leaves.end(), leaf) == item_.leaves.end()) {
      item_.leaves.push_back(std::move(leaf));
    }
  }

  void VisitItemOperands() {
    const Node& node = graph_.node(item_.node);
    if (item_.kind != ItemKind::kParts) return VisitOperands(node, item_.coords, true);
    for (ValueId operand : node.operands) Visit(operand, item_.coords, true);
  }

  // `coords`: a point of the node's domain.
  void VisitOperands(const Node& node, const Coords& coords, bool direct) {
    switch (node.op) {
      case Op::kPad:
      case Op::kConcat:
        for (ValueId operand : node.operands) {
          if (graph_.type(operand).NumElements() > 0) Visit(operand, {}, false);
        }
        return;
      case Op::kRandom:
        return Visit(node.operands[0], Coords(graph_.type(node.operands[0]).sizes.size()), direct);
      case Op::kTake:
      case Op::kTakeGrad:
        Visit(node.operands[0], coords, direct && node.op == Op::kTakeGrad);
        return Visit(node.operands[1], IndexPart(node, coords), direct);
      case Op::kGather:
        Visit(node.operands[0], {}, false);
        return Visit(node.operands[1], coords, direct);
      case Op::kScatterAdd:
        Visit(node.operands[0], {}, false);
        Visit(node.operands[1], coords, direct);
        return Visit(node.operands[2], coords, direct);
      default:
        for (ValueId operand : node.operands) Visit(operand, coords, direct);
    }
  }

  // The part of a take's (or its gradient's) position that is the index's position.
  Coords IndexPart(const Node& node, const Coords& coords) const {
    if (coords.empty()) return {};
    const int64_t dim = ir::IntAttr(node, "dim");
    return Coords(coords.begin() + dim, coords.begin() + dim + graph_.type(node.operands[1]).rank());
  }

  const FusionGraph& fusion_;
  const ir::Graph& graph_;
  Item& item_;
  Split split_;
};

}  // namespace

FusionGraph::FusionGraph(const ir::Graph& graph, const std::vector<ValueId>& pinned)
    : graph_(graph),
      producer_(graph.num_values(), -1),
      inlined_(graph.num_nodes(), false),
      required_(graph.num_values(), false),
      pinned_(graph.num_values(), false),
      uses_(graph.num_values(), 0),
      only_expanded_(graph.num_values(), true),
      only_moved_(graph.num_values(), true) {
  for (ValueId value : pinned) pinned_[value] = required_[value] = true;
  FindRequired();
  FindUses();
  DecideInlining();
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (ir::KindOf(node.op) == OpKind::kView) continue;
    if (inlined_[id] && !required_[node.results[0]]) continue;
    AddItem(id);
  }
}

int64_t FusionGraph::Bytes(ValueId value) const {
  return graph_.type(value).NumElements() * ir::ByteSize(graph_.type(value).dtype);
}

void FusionGraph::FindUses() {
  for (NodeId id : graph_.order()) {
    const Node& node = graph_.node(id);
    if (ir::KindOf(node.op) == OpKind::kView) continue;
    const bool moves = node.op == Op::kPad || node.op == Op::kGather ||
                       (node.op == Op::kConcat && !(required_[node.results[0]] && InEqualParts(node)));
    for (ValueId operand : node.operands) {
      if (operand == ir::kNoValue) continue;
      const ValueId base = BaseOf(graph_, operand);
      ++uses_[base];
      if (!moves) only_moved_[base] = false;
      if (graph_.type(operand).NumElements() < 8 * graph_.type(base).NumElements()) only_expanded_[base] = false;
    }
  }
}

void FusionGraph::FindRequired() {
  for (NodeId id : graph_.order()) {
    const Node& node = graph_.node(id);
    if (node.op == Op::kAten) {
      for (ValueId operand : node.operands) {
        if (operand != ir::kNoValue) required_[BaseOf(graph_, operand)] = true;
      }
    } else if (node.op == Op::kTake) {
      required_[BaseOf(graph_, node.operands[0])] = true;
    }
  }
  for (const ir::Output& output : graph_.outputs) {
    if (output.value != ir::kNoValue) required_[BaseOf(graph_, output.value)] = true;
  }
}

bool FusionGraph::InEqualParts(const Node& node) const {
  const Dims& sizes = graph_.type(node.operands[0]).sizes;
  return node.operands.size() <= 8 && std::all_of(node.operands.begin(), node.operands.end(),
                                                  [&](ValueId operand) { return graph_.type(operand).sizes == sizes; });
}

bool FusionGraph::ShouldInline(NodeId id, int64_t cost, int64_t leaves) const {
  const Node& node = graph_.node(id);
  const ValueId value = node.results[0];
  if (!ir::IsFusable(graph_.type(value).dtype) || pinned_[value]) return false;
  if (node.op == Op::kFull || node.op == Op::kIota) return true;
  const bool moves = node.op == Op::kPad || node.op == Op::kConcat || node.op == Op::kCopy;
  if (ir::KindOf(node.op) != OpKind::kPointwise && !moves) return false;
  if (leaves == 0) return cost <= 16;
  if (required_[value]) return false;
  if (node.op == Op::kCopy) return cost <= 8;
  if (moves) return uses_[value] <= 2 && cost <= 8;
  if (graph_.type(value).NumElements() == 1) return cost <= 8 && leaves <= 2;
  if (only_expanded_[value]) return cost <= 4 && leaves <= 2;
  if (only_moved_[value]) return uses_[value] == 1 && cost <= 8 && leaves <= 3;
  return uses_[value] >= 2 && leaves <= 1 && cost <= 2;
}

void FusionGraph::DecideInlining() {
  std::vector<int64_t> cost(graph_.num_nodes(), 0);  // of an inlined node with all that is inlined into it
  std::vector<int64_t> leaves(graph_.num_nodes(), 0);
  for (NodeId id : graph_.order()) {
    const Node& node = graph_.node(id);
    if (ir::KindOf(node.op) == OpKind::kView || ir::KindOf(node.op) == OpKind::kExtern || node.op == Op::kSeed)
      continue;
    int64_t total = CostOf(node.op);
    int64_t count = 0;
    for (ValueId operand : node.operands) {
      const NodeId producer = graph_.value(BaseOf(graph_, operand)).producer;
      if (producer != ir::kNoNode && inlined_[producer]) {
        total += cost[producer];
        count += leaves[producer];
      } else {
        count += 1;
      }
    }
    cost[id] = total;
    leaves[id] = count;
    inlined_[id] = ShouldInline(id, total, count);
  }
}

void FusionGraph::AddItem(NodeId id) {
  const Node& node = graph_.node(id);
  Item item;
  item.node = id;
  if (node.op == Op::kAten || node.op == Op::kSeed) {
    item.kind = ItemKind::kOpaque;
    for (ValueId operand : node.operands) {
      if (operand != ir::kNoValue) item.leaves.push_back(Leaf{BaseOf(graph_, operand), false, {}});
    }
  } else {
    if (ir::KindOf(node.op) == OpKind::kReduction) item.kind = ItemKind::kReduce;
    if (node.op == Op::kTakeGrad || node.op == Op::kScatterAdd) item.kind = ItemKind::kScatter;
    if (node.op == Op::kConcat && InEqualParts(node)) item.kind = ItemKind::kParts;
    item.domain = DomainOf(graph_, node, item.kind);
    LeafFinder(*this, item).Run();
    if (item.kind == ItemKind::kReduce) {
      for (int64_t dim : ir::DimsAttr(node, "dims")) {
        for (const Term& term : item.coords[dim].terms) item.reduced |= uint64_t{1} << term.dim;
      }
    }
  }
  for (ValueId result : node.results) {
    if (result != ir::kNoValue) producer_[result] = static_cast<int32_t>(items_.size());
  }
  items_.push_back(std::move(item));
}

int32_t FusionGraph::AddCombine(int32_t reduce_item) {
  const ValueId result = graph_.node(items_[reduce_item].node).results[0];
  Item item;
  item.node = items_[reduce_item].node;
  item.kind = ItemKind::kCombine;
  item.domain = graph_.type(result).sizes;
  LeafFinder(*this, item).Run();
  producer_[result] = static_cast<int32_t>(items_.size());
  items_.push_back(std::move(item));
  return producer_[result];
}

}  // namespace stepone::loops
