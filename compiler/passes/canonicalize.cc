#include "compiler/passes/canonicalize.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/builder.h"
#include "compiler/passes/rewriter.h"

namespace stepone::passes {
namespace {

using ir::Dims;
using ir::DType;
using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::Op;
using ir::ValueId;

const Node* Producer(const Graph& graph, ValueId value, Op op) {
  const ir::NodeId producer = graph.value(value).producer;
  if (producer == ir::kNoNode || graph.node(producer).op != op) return nullptr;
  return &graph.node(producer);
}

Rewrite Same(ValueId value) { return {false, value}; }
Rewrite Changed() { return {true, kNoValue}; }

// Every value of `from` is one of `to`.
bool IsExact(DType from, DType to) {
  if (from == to || from == DType::kBool) return true;
  switch (from) {
    case DType::kUInt8:
      return to == DType::kInt16 || to == DType::kInt32 || to == DType::kInt64 || to == DType::kFloat32 ||
             to == DType::kFloat64;
    case DType::kInt8:
      return to == DType::kInt16 || to == DType::kInt32 || to == DType::kInt64 || to == DType::kFloat32 ||
             to == DType::kFloat64;
    case DType::kInt16:
      return to == DType::kInt32 || to == DType::kInt64 || to == DType::kFloat32 || to == DType::kFloat64;
    case DType::kInt32:
      return to == DType::kInt64 || to == DType::kFloat64;
    case DType::kFloat16:
    case DType::kBFloat16:
      return to == DType::kFloat32 || to == DType::kFloat64;
    case DType::kFloat32:
      return to == DType::kFloat64;
    default:
      return false;
  }
}

bool IsCommutative(Op op) {
  switch (op) {
    case Op::kAdd:
    case Op::kMul:
    case Op::kMaximum:
    case Op::kMinimum:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
    case Op::kEq:
    case Op::kNe:
      return true;
    default:
      return false;
  }
}

// A cast of an exact cast is a cast of what that was of.
Rewrite Cast(Graph& graph, Node& node) {
  const ValueId x = node.operands[0];
  const DType to = graph.type(node.results[0]).dtype;
  if (graph.type(x).dtype == to) return Same(x);
  const Node* inner = Producer(graph, x, Op::kCast);
  if (inner == nullptr || !IsExact(graph.type(inner->operands[0]).dtype, graph.type(x).dtype)) return {};
  node.operands[0] = inner->operands[0];
  return graph.type(node.operands[0]).dtype == to ? Rewrite{true, node.operands[0]} : Changed();
}

Rewrite Reshape(Graph& graph, Node& node) {
  const ValueId x = node.operands[0];
  if (graph.type(x).sizes == graph.type(node.results[0]).sizes) return Same(x);
  const Node* inner = Producer(graph, x, Op::kReshape);
  if (inner == nullptr) return {};
  node.operands[0] = inner->operands[0];
  return Changed();
}

Rewrite Permute(Graph& graph, Node& node) {
  const Dims dims = DimsAttr(node, "dims");
  if (dims == ir::AllDims(static_cast<int64_t>(dims.size()))) return Same(node.operands[0]);
  const Node* inner = Producer(graph, node.operands[0], Op::kPermute);
  if (inner == nullptr) return {};
  Dims merged;
  for (const int64_t dim : dims) merged.push_back(DimsAttr(*inner, "dims")[dim]);
  node.attrs["dims"] = merged;
  node.operands[0] = inner->operands[0];
  return Changed();
}

Rewrite Expand(Graph& graph, Node& node) {
  const ValueId x = node.operands[0];
  if (graph.type(x).sizes == graph.type(node.results[0]).sizes) return Same(x);
  const Node* inner = Producer(graph, x, Op::kExpand);
  if (inner == nullptr) return {};
  node.operands[0] = inner->operands[0];
  return Changed();
}

Rewrite Slice(Graph& graph, Node& node) {
  const ValueId x = node.operands[0];
  // A slice that loses nothing starts at 0 by 1.
  if (graph.type(x).sizes == graph.type(node.results[0]).sizes) return Same(x);
  const Node* inner = Producer(graph, x, Op::kSlice);
  if (inner == nullptr || IntAttr(*inner, "dim") != IntAttr(node, "dim")) return {};
  const int64_t inner_step = IntAttr(*inner, "step");
  node.attrs["start"] = IntAttr(*inner, "start") + IntAttr(node, "start") * inner_step;
  node.attrs["step"] = IntAttr(node, "step") * inner_step;
  node.operands[0] = inner->operands[0];
  return Changed();
}

Rewrite Flip(Graph& graph, Node& node) {
  const Node* inner = Producer(graph, node.operands[0], Op::kFlip);
  if (inner == nullptr || DimsAttr(*inner, "dims") != DimsAttr(node, "dims")) return {};
  return Same(inner->operands[0]);
}

// Undone by itself.
Rewrite Involution(Graph& graph, Node& node) {
  const Node* inner = Producer(graph, node.operands[0], node.op);
  return inner == nullptr ? Rewrite{} : Same(inner->operands[0]);
}

Rewrite ConstantLast(Graph& graph, Node& node) {
  if (!IsCommutative(node.op)) return {};
  const bool first = Producer(graph, node.operands[0], Op::kFull) != nullptr;
  if (!first || Producer(graph, node.operands[1], Op::kFull) != nullptr) return {};
  std::swap(node.operands[0], node.operands[1]);
  return Changed();
}

Rewrite Visit(Graph& graph, Node& node) {
  switch (node.op) {
    case Op::kCast:
      return Cast(graph, node);
    case Op::kReshape:
      return Reshape(graph, node);
    case Op::kPermute:
      return Permute(graph, node);
    case Op::kExpand:
      return Expand(graph, node);
    case Op::kSlice:
      return Slice(graph, node);
    case Op::kFlip:
      return Flip(graph, node);
    case Op::kNot:
    case Op::kNeg:
      return Involution(graph, node);
    case Op::kCopy:
      return Same(node.operands[0]);
    case Op::kConcat:
      return node.operands.size() == 1 ? Same(node.operands[0]) : Rewrite{};
    case Op::kWhere:
      return node.operands[1] == node.operands[2] ? Same(node.operands[1]) : Rewrite{};
    default:
      return ConstantLast(graph, node);
  }
}

}  // namespace

absl::StatusOr<bool> Canonicalize(ir::Graph& graph, const PassOptions& options) { return RewriteNodes(graph, Visit); }

}  // namespace stepone::passes
