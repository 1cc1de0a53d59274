#include "compiler/loops/layout.h"

#include <algorithm>
#include <vector>

namespace stepone::loops {

using ir::Dims;
using ir::Node;
using ir::Op;
using ir::OpKind;
using ir::ValueId;

ValueId BaseOf(const ir::Graph& graph, ValueId value) {
  for (;;) {
    const ir::NodeId producer = graph.value(value).producer;
    if (producer == ir::kNoNode || ir::KindOf(graph.node(producer).op) != OpKind::kView) return value;
    value = graph.node(producer).operands[0];
  }
}

bool IsDense(const ir::TensorType& type) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i] == 0) return true;
    if (type.sizes[i] > 1) dims.emplace_back(type.strides[i], type.sizes[i]);
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (const auto& [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

ir::TensorType MemoryType(const ir::Graph& graph, ValueId value) {
  const ir::Value& v = graph.value(value);
  if (v.producer == ir::kNoNode || graph.node(v.producer).op == Op::kAten) {
    const bool constant = std::any_of(graph.constants.begin(), graph.constants.end(),
                                      [value](const ir::Constant& c) { return c.value == value; });
    return constant ? ir::Contiguous(v.type.dtype, v.type.sizes) : v.type;
  }
  return IsDense(v.type) ? v.type : ir::Contiguous(v.type.dtype, v.type.sizes);
}

bool SameStrides(const Dims& sizes, const Dims& a, const Dims& b) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return true;
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && a[i] != b[i]) return false;
  }
  return true;
}

std::optional<Dims> ReshapeStrides(const Dims& from, const Dims& strides, const Dims& to) {
  if (std::count(from.begin(), from.end(), 0) > 0) return ir::ContiguousStrides(to);
  // Runs of `from` that are contiguous among themselves, from the last dim on; each run must be a run of `to`.
  Dims result(to.size(), 1);
  size_t t = to.size();
  size_t f = from.size();
  while (f > 0) {
    if (from[f - 1] == 1) {
      --f;
      continue;
    }
    const int64_t step = strides[f - 1];
    int64_t run = from[f - 1];
    --f;
    while (f > 0 && (from[f - 1] == 1 || strides[f - 1] == step * run)) {
      run *= from[f - 1];
      --f;
    }
    int64_t covered = 1;
    while (t > 0 && covered < run) {
      --t;
      result[t] = step * covered;
      covered *= to[t];
    }
    if (covered != run) return std::nullopt;
  }
  for (size_t i = 0; i < t; ++i) {
    if (to[i] != 1) return std::nullopt;
  }
  return result;
}

namespace {

// One view step: `at` describes the operand and becomes the result's description.
bool Apply(const ir::Graph& graph, const Node& node, Strided& at) {
  const Dims& from = graph.type(node.operands[0]).sizes;
  const Dims& to = graph.type(node.results[0]).sizes;
  switch (node.op) {
    case Op::kReshape: {
      std::optional<Dims> strides = ReshapeStrides(from, at.strides, to);
      if (!strides) return false;
      at.strides = std::move(*strides);
      return true;
    }
    case Op::kPermute: {
      const Dims& dims = ir::DimsAttr(node, "dims");
      Dims strides(dims.size());
      for (size_t i = 0; i < dims.size(); ++i) strides[i] = at.strides[dims[i]];
      at.strides = std::move(strides);
      return true;
    }
    case Op::kExpand:
      for (size_t i = 0; i < to.size(); ++i) {
        if (from[i] != to[i]) at.strides[i] = 0;
      }
      return true;
    case Op::kSlice: {
      const int64_t dim = ir::IntAttr(node, "dim");
      at.offset += ir::IntAttr(node, "start") * at.strides[dim];
      at.strides[dim] *= ir::IntAttr(node, "step");
      return true;
    }
    case Op::kFlip:
      for (int64_t dim : ir::DimsAttr(node, "dims")) {
        at.offset += (from[dim] - 1) * at.strides[dim];
        at.strides[dim] = -at.strides[dim];
      }
      return true;
    default:
      return false;
  }
}

}  // namespace

std::optional<Strided> StridedFrom(const ir::Graph& graph, ValueId value, ValueId root, const Dims& root_strides) {
  std::vector<const Node*> chain;
  for (ValueId at = value; at != root;) {
    chain.push_back(&graph.node(graph.value(at).producer));
    at = chain.back()->operands[0];
  }
  Strided at{root, 0, root_strides};
  for (size_t i = chain.size(); i-- > 0;) {
    if (!Apply(graph, *chain[i], at)) return std::nullopt;
  }
  return at;
}

std::optional<Strided> StridedAccess(const ir::Graph& graph, ValueId value) {
  const ValueId base = BaseOf(graph, value);
  return StridedFrom(graph, value, base, MemoryType(graph, base).strides);
}

}  // namespace stepone::loops
