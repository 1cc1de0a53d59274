#include "compiler/passes/fold_constants.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <utility>

#include "compiler/ir/scalar.h"
#include "compiler/passes/rewriter.h"

namespace stepone::passes {
namespace {

using ir::DType;
using ir::Graph;
using ir::Node;
using ir::Op;
using ir::OpKind;
using ir::Scalar;
using ir::ValueId;

// The number that all elements of `value` are.
std::optional<Scalar> Known(const Graph& graph, ValueId value) {
  const ir::NodeId producer = graph.value(value).producer;
  if (producer == ir::kNoNode || graph.node(producer).op != Op::kFull) return std::nullopt;
  return ir::ToScalar(graph.node(producer).attrs.find("value")->second);
}

Rewrite BecomeFull(const Graph& graph, Node& node, const Scalar& value) {
  const DType dtype = graph.type(node.results[0]).dtype;
  node.op = Op::kFull;
  node.operands.clear();
  node.attrs = {{"value", ir::ToAttr(ir::Convert(value, dtype))}};
  return {true, ir::kNoValue};
}

// Float operations that IEEE 754 rounds correctly. Double suffices to compute float32's: rounding twice gives the same.
std::optional<Scalar> FloatResult(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kNeg:
      return -a;
    case Op::kAbs:
      return std::abs(a);
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kReciprocal:
      return 1 / a;
    case Op::kMaximum:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
    case Op::kMinimum:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kGt:
      return a > b;
    case Op::kGe:
      return a >= b;
    case Op::kIsNan:
      return std::isnan(a);
    default:
      return std::nullopt;
  }
}

// Unsigned arithmetic wraps, as tensors' does; the caller wraps to the dtype.
std::optional<Scalar> IntegerResult(Op op, int64_t a, int64_t b, DType dtype) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case Op::kAdd:
      return static_cast<int64_t>(ua + ub);
    case Op::kSub:
      return static_cast<int64_t>(ua - ub);
    case Op::kMul:
      return static_cast<int64_t>(ua * ub);
    case Op::kNeg:
      return static_cast<int64_t>(-ua);
    case Op::kMaximum:
      return std::max(a, b);
    case Op::kMinimum:
      return std::min(a, b);
    case Op::kNot:
      return dtype == DType::kBool ? int64_t{a == 0} : ~a;
    case Op::kAnd:
      return a & b;
    case Op::kOr:
      return a | b;
    case Op::kXor:
      return a ^ b;
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kGt:
      return a > b;
    case Op::kGe:
      return a >= b;
    default:
      return std::nullopt;
  }
}

Rewrite Pointwise(Graph& graph, Node& node) {
  std::optional<Scalar> operands[2];
  if (node.operands.size() > 2) return {};
  for (size_t i = 0; i < node.operands.size(); ++i) {
    operands[i] = Known(graph, node.operands[i]);
    if (!operands[i]) return {};
  }
  if (node.op == Op::kCast) return BecomeFull(graph, node, *operands[0]);
  const DType dtype = graph.type(node.operands[0]).dtype;
  const Scalar a = *operands[0], b = operands[1].value_or(int64_t{0});
  const auto result = IsFloat(dtype) ? FloatResult(node.op, ir::ToDouble(a), ir::ToDouble(b))
                                     : IntegerResult(node.op, ir::ToInt64(a), ir::ToInt64(b), dtype);
  return result ? BecomeFull(graph, node, *result) : Rewrite{};
}

Rewrite Where(Graph& graph, Node& node) {
  const auto condition = Known(graph, node.operands[0]);
  if (!condition) return {};
  return {false, node.operands[ir::ToInt64(*condition) != 0 ? 1 : 2]};
}

// Whether `op` with `b` as its second operand gives the first one, bit for bit.
bool IsNeutral(Op op, const Scalar& b, DType dtype) {
  const double value = ir::ToDouble(b);
  switch (op) {
    case Op::kMul:
    case Op::kDiv:
    case Op::kPow:
      return value == 1;
    case Op::kFloorDiv:
    case Op::kTruncDiv:
      return value == 1 && !IsFloat(dtype);
    case Op::kAdd:
      return value == 0 && (!IsFloat(dtype) || std::signbit(value));
    case Op::kSub:
      return value == 0 && (!IsFloat(dtype) || !std::signbit(value));
    case Op::kAnd:
      return dtype == DType::kBool && value != 0;
    case Op::kOr:
    case Op::kXor:
      return value == 0;
    default:
      return false;
  }
}

Rewrite Neutral(Graph& graph, Node& node) {
  if (node.operands.size() != 2) return {};
  const DType dtype = graph.type(node.operands[0]).dtype;
  const auto b = Known(graph, node.operands[1]);
  if (!b) return {};
  if (IsNeutral(node.op, *b, dtype)) return {false, node.operands[0]};
  const bool absorbs = (node.op == Op::kMul && !IsFloat(dtype)) || node.op == Op::kAnd;
  if (absorbs && ir::ToDouble(*b) == 0) return BecomeFull(graph, node, *b);
  if (node.op == Op::kOr && dtype == DType::kBool && ir::ToInt64(*b) != 0) return BecomeFull(graph, node, true);
  return {};
}

// --- comparisons of integers whose range is known ---

struct Range {
  int64_t low = 0;
  int64_t high = 0;
};

// Of all elements of an integer value: a constant, or positions along a dim and views of them.
std::optional<Range> RangeOf(const Graph& graph, ValueId value) {
  while (graph.value(value).producer != ir::kNoNode) {
    const Node& node = graph.node(graph.value(value).producer);
    const ir::TensorType& type = graph.type(value);
    if (IsFloat(type.dtype) || type.NumElements() == 0) return std::nullopt;
    if (node.op == Op::kFull) {
      const int64_t number = ir::ToInt64(ir::ToScalar(node.attrs.find("value")->second));
      return Range{number, number};
    }
    if (node.op == Op::kIota) {
      constexpr int64_t kSmall = int64_t{1} << 30;  // below it nothing overflows, and i32 does not wrap
      const int64_t start = IntAttr(node, "start"), step = IntAttr(node, "step");
      const int64_t last = type.sizes[IntAttr(node, "dim")] - 1;
      if (ir::ByteSize(type.dtype) < 4 || std::abs(start) > kSmall / 2 || last > kSmall) return std::nullopt;
      if (step != 0 && last > kSmall / 2 / std::abs(step)) return std::nullopt;
      return Range{std::min(start, start + step * last), std::max(start, start + step * last)};
    }
    if (KindOf(node.op) != OpKind::kView) return std::nullopt;
    value = node.operands[0];
  }
  return std::nullopt;
}

Rewrite CompareRanges(Graph& graph, Node& node) {
  if (node.op != Op::kLt && node.op != Op::kLe && node.op != Op::kGt && node.op != Op::kGe) return {};
  if (node.op != Op::kLt && node.op != Op::kLe && node.op != Op::kGt && node.op != Op::kGe) return {};
  const auto a = RangeOf(graph, node.operands[0]), b = RangeOf(graph, node.operands[1]);
  if (!a || !b) return {};
  const bool below = a->high < b->low, at_most = a->high <= b->low;
  const bool above = a->low > b->high, at_least = a->low >= b->high;
  switch (node.op) {
    case Op::kLt:
      return below || at_least ? BecomeFull(graph, node, below) : Rewrite{};
    case Op::kLe:
      return at_most || above ? BecomeFull(graph, node, at_most) : Rewrite{};
    case Op::kGt:
      return above || at_most ? BecomeFull(graph, node, above) : Rewrite{};
    case Op::kGe:
      return at_least || below ? BecomeFull(graph, node, at_least) : Rewrite{};
    default:
      return {};
  }
}

Rewrite Move(Graph& graph, Node& node) {
  const auto value = Known(graph, node.operands[0]);
  if (!value) return {};
  if (node.op == Op::kPad) {
    const Scalar border = ir::ToScalar(node.attrs.find("value")->second);
    const auto bits = [](const Scalar& scalar) { return std::bit_cast<uint64_t>(ir::ToDouble(scalar)); };
    if (bits(border) != bits(*value)) return {};
  }
  return BecomeFull(graph, node, *value);
}

Rewrite Visit(Graph& graph, Node& node) {
  const OpKind kind = KindOf(node.op);
  if (kind == OpKind::kView || node.op == Op::kPad) return Move(graph, node);
  if (node.op == Op::kWhere) return Where(graph, node);
  if (kind != OpKind::kPointwise) return {};
  Rewrite rewrite = Pointwise(graph, node);
  if (!rewrite.changed) rewrite = CompareRanges(graph, node);
  return rewrite.changed ? rewrite : Neutral(graph, node);
}

}  // namespace

absl::StatusOr<bool> FoldConstants(ir::Graph& graph, const PassOptions& options) { return RewriteNodes(graph, Visit); }

}  // namespace stepone::passes
