#include "compiler/analysis/op_cost.h"

namespace stepone::analysis {

using ir::Op;
using ir::OpKind;

bool IsExpensive(Op op) {
  switch (op) {
    case Op::kExp:
    case Op::kExpm1:
    case Op::kLog:
    case Op::kLog1p:
    case Op::kSqrt:
    case Op::kRsqrt:
    case Op::kReciprocal:
    case Op::kSin:
    case Op::kCos:
    case Op::kTanh:
    case Op::kSigmoid:
    case Op::kErf:
    case Op::kDiv:
    case Op::kFloorDiv:
    case Op::kTruncDiv:
    case Op::kRemainder:
    case Op::kFmod:
    case Op::kPow:
    case Op::kRandom:
      return true;
    default:
      return false;
  }
}

int64_t FlopsPerElement(Op op) {
  switch (op) {
    case Op::kExp:
    case Op::kExpm1:
    case Op::kSin:
    case Op::kCos:
      return 12;
    case Op::kLog:
    case Op::kLog1p:
      return 14;
    case Op::kTanh:
    case Op::kSigmoid:
    case Op::kErf:
      return 18;
    case Op::kPow:
      return 30;
    case Op::kRandom:
      return 20;
    case Op::kSqrt:
    case Op::kRsqrt:
    case Op::kReciprocal:
    case Op::kDiv:
    case Op::kFloorDiv:
    case Op::kTruncDiv:
    case Op::kRemainder:
    case Op::kFmod:
      return 4;
    case Op::kTakeGrad:
    case Op::kScatterAdd:
      return 1;
    default:
      return ir::KindOf(op) == OpKind::kPointwise || ir::KindOf(op) == OpKind::kReduction ? 1 : 0;
  }
}

int64_t Flops(const ir::Graph& graph, const ir::Node& node) {
  if (node.op == Op::kAten || node.results.empty()) return 0;
  // A reduction works per operand element, and so does an addition into rows that an index names.
  const bool per_operand = ir::KindOf(node.op) == OpKind::kReduction || node.op == Op::kTakeGrad;
  const ir::ValueId counted = node.op == Op::kScatterAdd ? node.operands[2]
                              : per_operand              ? node.operands[0]
                                                         : node.results[0];
  return FlopsPerElement(node.op) * graph.type(counted).NumElements();
}

}  // namespace stepone::analysis
