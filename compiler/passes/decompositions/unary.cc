// One-operand functions and conversions.
#include <limits>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::DType;
using ir::Expr;
using ir::Op;

// Integers and bool become the default float dtype first, which the declared result tells.
std::optional<Expr> AsFloat(CallSite& site, Expr x) {
  if (IsFloat(x.dtype())) return Wide(x);
  const DType dtype = site.ResultDType(x);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) return std::nullopt;
  return Cast(x, dtype);
}

template <Op op>
Results FloatFunction(CallSite& site) {
  const Expr x = site.Tensor("self");
  const auto wide = AsFloat(site, x);
  if (!wide) return Keep();
  return One(Cast(Unary(op, *wide), IsFloat(x.dtype()) ? x.dtype() : wide->dtype()));
}

// Of any number, in its own dtype.
template <Op op>
Results NumberFunction(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (x.dtype() == DType::kBool) return Keep();
  return One(Cast(Unary(op, Wide(x)), x.dtype()));
}

// Integers are whole already.
template <Op op>
Results Rounding(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (!IsFloat(x.dtype())) return x.dtype() == DType::kBool ? Keep() : One(x);
  return One(Cast(Unary(op, Wide(x)), x.dtype()));
}

Results Relu(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (x.dtype() == DType::kBool) return Keep();
  return One(Cast(Binary(Op::kMaximum, Wide(x), int64_t{0}), x.dtype()));
}

Results IsNan(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (!IsFloat(x.dtype())) return One(site.builder().Full(false, DType::kBool, x.sizes()));
  return One(Unary(Op::kIsNan, Wide(x)));
}

Results IsInf(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (!IsFloat(x.dtype())) return One(site.builder().Full(false, DType::kBool, x.sizes()));
  return One(Binary(Op::kEq, Unary(Op::kAbs, Wide(x)), std::numeric_limits<double>::infinity()));
}

Results LogicalNot(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (x.dtype() == DType::kBool) return One(Unary(Op::kNot, x));
  return One(Binary(Op::kEq, Wide(x), int64_t{0}));
}

Results BitwiseNot(CallSite& site) {
  const Expr x = site.Tensor("self");
  return IsFloat(x.dtype()) ? Keep() : One(Unary(Op::kNot, x));
}

Results ToCopy(CallSite& site) {
  const Expr x = site.Tensor("self");
  // Results that leave the CPU are not plain and never come here.
  return One(Cast(x, site.ResultDType(x)));
}

Results Square(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (x.dtype() == DType::kBool) return Keep();
  return One(Cast(Wide(x) * Wide(x), x.dtype()));
}

}  // namespace

Rules UnaryRules() {
  return {
      {"aten.exp.default", FloatFunction<Op::kExp>},
      {"aten.expm1.default", FloatFunction<Op::kExpm1>},
      {"aten.log.default", FloatFunction<Op::kLog>},
      {"aten.log1p.default", FloatFunction<Op::kLog1p>},
      {"aten.sqrt.default", FloatFunction<Op::kSqrt>},
      {"aten.rsqrt.default", FloatFunction<Op::kRsqrt>},
      {"aten.reciprocal.default", FloatFunction<Op::kReciprocal>},
      {"aten.sin.default", FloatFunction<Op::kSin>},
      {"aten.cos.default", FloatFunction<Op::kCos>},
      {"aten.tanh.default", FloatFunction<Op::kTanh>},
      {"aten.sigmoid.default", FloatFunction<Op::kSigmoid>},
      {"aten.erf.default", FloatFunction<Op::kErf>},
      {"aten.neg.default", NumberFunction<Op::kNeg>},
      {"aten.abs.default", NumberFunction<Op::kAbs>},
      {"aten.sign.default", NumberFunction<Op::kSign>},
      {"aten.sgn.default", NumberFunction<Op::kSign>},
      {"aten.square.default", Square},
      {"aten.floor.default", Rounding<Op::kFloor>},
      {"aten.ceil.default", Rounding<Op::kCeil>},
      {"aten.round.default", Rounding<Op::kRound>},
      {"aten.trunc.default", Rounding<Op::kTrunc>},
      {"aten.relu.default", Relu},
      {"aten.isnan.default", IsNan},
      {"aten.isinf.default", IsInf},
      {"aten.logical_not.default", LogicalNot},
      {"aten.bitwise_not.default", BitwiseNot},
      {"aten._to_copy.default", ToCopy},
  };
}

}  // namespace stepone::passes
