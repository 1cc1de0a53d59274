// Two-operand arithmetic: sums, products, quotients, remainders, powers, extremes.
#include <cmath>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::ComputeType;
using ir::DType;
using ir::Expr;
using ir::Op;
using ir::Scalar;

// The operands of a call, in the dtype in which torch's kernel computes.
struct Pair {
  DType common = DType::kFloat32;  // torch's result type
  Expr a;
  Expr b;
};

void AddTo(ir::ResultType& type, CallSite& site, std::string_view name) {
  if (site.IsTensor(name)) {
    type.AddTensor(site.Tensor(name).type());
  } else {
    type.AddScalar(site.Number(name));
  }
}

// By way of `common`, which rounds 16-bit floats and wraps integers; `exact` skips that.
Expr Operand(CallSite& site, std::string_view name, DType common, bool exact) {
  const DType compute = ComputeType(common);
  if (site.IsTensor(name)) {
    const Expr x = site.Tensor(name);
    return Cast(exact ? x : Cast(x, common), compute);
  }
  const Scalar number = site.Number(name);
  return site.builder().Full(exact ? number : Convert(number, common), compute, {});
}

bool HasDims(CallSite& site, std::string_view name) { return site.IsTensor(name) && site.Tensor(name).rank() > 0; }

// `scalar_is_exact`: torch's kernel for 16-bit floats takes a second operand without dimensions in float32.
Pair Operands(CallSite& site, bool scalar_is_exact, bool to_float, std::string_view first = "self",
              std::string_view second = "other") {
  ir::ResultType type;
  AddTo(type, site, first);
  AddTo(type, site, second);
  Pair pair;
  pair.common = type.Get();
  if (to_float && !IsFloat(pair.common)) pair.common = DType::kFloat32;
  const bool narrow = pair.common != ComputeType(pair.common);
  pair.a = Operand(site, first, pair.common, false);
  pair.b = Operand(site, second, pair.common, scalar_is_exact && narrow && !HasDims(site, second));
  return pair;
}

// torch adds and subtracts `alpha` times the second operand; bool: or.
Results AddOrSub(CallSite& site, Op op, bool reversed) {
  Pair pair = Operands(site, false, false);
  const Scalar alpha = site.OptionalNumber("alpha").value_or(int64_t{1});
  if (pair.common == DType::kBool) {
    if (op != Op::kAdd || ir::ToDouble(alpha) != 1) return Keep();
    return One(Binary(Op::kOr, pair.a, pair.b));
  }
  Expr& scaled = reversed ? pair.a : pair.b;
  if (ir::ToDouble(alpha) != 1) scaled = Binary(Op::kMul, scaled, Convert(alpha, pair.common));
  const Expr result = reversed ? Binary(op, pair.b, pair.a) : Binary(op, pair.a, pair.b);
  return One(Cast(result, pair.common));
}

Results Add(CallSite& site) { return AddOrSub(site, Op::kAdd, false); }
Results Sub(CallSite& site) { return AddOrSub(site, Op::kSub, false); }
Results Rsub(CallSite& site) { return AddOrSub(site, Op::kSub, true); }

Results Mul(CallSite& site) {
  const Pair pair = Operands(site, true, false);
  const Op op = pair.common == DType::kBool ? Op::kAnd : Op::kMul;
  return One(Cast(Binary(op, pair.a, pair.b), pair.common));
}

Results TrueDiv(CallSite& site) {
  const Pair pair = Operands(site, true, true);
  return One(Cast(Binary(Op::kDiv, pair.a, pair.b), pair.common));
}

Results IntegerLikeDiv(CallSite& site, bool floor) {
  const Pair pair = Operands(site, true, false);
  if (pair.common == DType::kBool) return Keep();
  Expr result = pair.a;
  if (floor) {
    result = Binary(Op::kFloorDiv, pair.a, pair.b);
  } else if (IsFloat(pair.common)) {
    // torch's kernel rounds the quotient of 16-bit floats before it cuts it.
    result = Unary(Op::kTrunc, Wide(Cast(Binary(Op::kDiv, pair.a, pair.b), pair.common)));
  } else {
    result = Binary(Op::kTruncDiv, pair.a, pair.b);
  }
  return One(Cast(result, pair.common));
}

Results DivMode(CallSite& site) {
  const std::string mode = site.String("rounding_mode");
  if (mode.empty()) return TrueDiv(site);
  if (mode != "floor" && mode != "trunc") return Keep();
  return IntegerLikeDiv(site, mode == "floor");
}

Results FloorDivide(CallSite& site) { return IntegerLikeDiv(site, true); }

// Ops that are one primitive in the common dtype.
template <Op op, bool bool_too>
Results Same(CallSite& site) {
  const Pair pair = Operands(site, false, false);
  if (!bool_too && pair.common == DType::kBool) return Keep();
  return One(Cast(Binary(op, pair.a, pair.b), pair.common));
}

// Numbers that cannot be NaN: fmax and fmin are maximum and minimum.
template <Op op, Op for_integers>
Results SkipNan(CallSite& site) {
  const Pair pair = Operands(site, false, false);
  return One(Cast(Binary(IsFloat(pair.common) ? op : for_integers, pair.a, pair.b), pair.common));
}

template <Op op>
Results Bitwise(CallSite& site) {
  const Pair pair = Operands(site, false, false);
  if (IsFloat(pair.common)) return Keep();
  return One(Binary(op, pair.a, pair.b));
}

// --- powers ---

// Multiplied as torch's integer power does it: exact, wraps.
Expr IntegerPower(Expr base, int64_t exponent) {
  Expr result = Like(base, int64_t{1});
  bool first = true;
  while (exponent > 0) {
    if (exponent & 1) {
      result = first ? base : result * base;
      first = false;
    }
    exponent >>= 1;
    if (exponent > 0) base = base * base;
  }
  return result;
}

// Exponents that torch's kernel treats apart, with its roundings between the steps.
std::optional<Expr> SpecialPower(Expr x, double exponent, DType common) {
  const auto rounded = [&](Expr e) { return Wide(Cast(e, common)); };
  if (exponent == 0) return Like(x, 1.0);
  if (exponent == 1) return x;
  if (exponent == 0.5) return Unary(Op::kSqrt, x);
  if (exponent == -0.5) return Unary(Op::kRsqrt, x);
  if (exponent == 2) return x * x;
  if (exponent == 3) return rounded(x * x) * x;
  if (exponent == -1) return Unary(Op::kReciprocal, x);
  if (exponent == -2) return Unary(Op::kReciprocal, rounded(x * x));
  return std::nullopt;
}

Results PowTensorScalar(CallSite& site) {
  const Scalar exponent = site.Number("exponent");
  ir::ResultType type;
  type.AddTensor(site.Tensor("self").type());
  type.AddScalar(exponent);
  const DType common = type.Get();
  if (common == DType::kBool) return Keep();
  const Expr x = Operand(site, "self", common, false);
  if (!IsFloat(common)) {
    if (ir::ToInt64(exponent) < 0) return Keep();
    return One(IntegerPower(x, ir::ToInt64(exponent)));
  }
  if (const auto special = SpecialPower(x, ir::ToDouble(exponent), common)) return One(Cast(*special, common));
  return One(Cast(Binary(Op::kPow, x, exponent), common));
}

Results Pow(CallSite& site) {
  const Pair pair = Operands(site, false, false, "self", "exponent");
  if (!IsFloat(pair.common)) return Keep();
  return One(Cast(Binary(Op::kPow, pair.a, pair.b), pair.common));
}

// --- three operands ---

Results AddCProduct(CallSite& site, Op op) {
  const Expr x = site.Tensor("self"), a = site.Tensor("tensor1"), b = site.Tensor("tensor2");
  ir::ResultType type;
  for (const Expr& operand : {x, a, b}) type.AddTensor(operand.type());
  const DType common = type.Get();
  const Scalar value = site.Number("value");
  if (common == DType::kBool || (op == Op::kDiv && !IsFloat(common))) return Keep();
  const auto in = [common](Expr e) { return Wide(Cast(e, common)); };
  // value * a * b, from the left, as torch's kernel does.
  Expr scaled = in(a);
  if (ir::ToDouble(value) != 1) scaled = Binary(Op::kMul, scaled, value);
  return One(Cast(in(x) + Binary(op, scaled, in(b)), common));
}

Results AddCMul(CallSite& site) { return AddCProduct(site, Op::kMul); }
Results AddCDiv(CallSite& site) { return AddCProduct(site, Op::kDiv); }

// start + weight * (end - start), from the nearer end.
Results Lerp(CallSite& site) {
  const Expr start = site.Tensor("self"), end = site.Tensor("end");
  const DType dtype = start.dtype();
  if (!IsFloat(dtype) || end.dtype() != dtype) return Keep();
  const Expr a = Wide(start), b = Wide(end);
  if (site.IsNumber("weight")) {
    const double weight = site.Float("weight");
    const Expr result = std::abs(weight) < 0.5 ? a + (b - a) * weight : b - (b - a) * (1 - weight);
    return One(Cast(result, dtype));
  }
  const Expr weight = site.Tensor("weight");
  if (weight.dtype() != dtype) return Keep();
  const Expr w = Wide(weight), difference = b - a;
  const Expr near_start = Binary(Op::kLt, Unary(Op::kAbs, w), 0.5);
  return One(Cast(Where(near_start, a + w * difference, b - difference * (1.0 - w)), dtype));
}

}  // namespace

Rules ArithmeticRules() {
  return {
      {"aten.add.Tensor", Add},
      {"aten.add.Scalar", Add},
      {"aten.sub.Tensor", Sub},
      {"aten.sub.Scalar", Sub},
      {"aten.rsub.Tensor", Rsub},
      {"aten.rsub.Scalar", Rsub},
      {"aten.mul.Tensor", Mul},
      {"aten.mul.Scalar", Mul},
      {"aten.div.Tensor", TrueDiv},
      {"aten.div.Scalar", TrueDiv},
      {"aten.div.Tensor_mode", DivMode},
      {"aten.div.Scalar_mode", DivMode},
      {"aten.floor_divide.default", FloorDivide},
      {"aten.floor_divide.Scalar", FloorDivide},
      {"aten.remainder.Tensor", Same<Op::kRemainder, false>},
      {"aten.remainder.Scalar", Same<Op::kRemainder, false>},
      {"aten.remainder.Scalar_Tensor", Same<Op::kRemainder, false>},
      {"aten.fmod.Tensor", Same<Op::kFmod, false>},
      {"aten.fmod.Scalar", Same<Op::kFmod, false>},
      {"aten.maximum.default", Same<Op::kMaximum, true>},
      {"aten.minimum.default", Same<Op::kMinimum, true>},
      {"aten.fmax.default", SkipNan<Op::kFmax, Op::kMaximum>},
      {"aten.fmin.default", SkipNan<Op::kFmin, Op::kMinimum>},
      {"aten.bitwise_and.Tensor", Bitwise<Op::kAnd>},
      {"aten.bitwise_and.Scalar", Bitwise<Op::kAnd>},
      {"aten.bitwise_or.Tensor", Bitwise<Op::kOr>},
      {"aten.bitwise_or.Scalar", Bitwise<Op::kOr>},
      {"aten.bitwise_xor.Tensor", Bitwise<Op::kXor>},
      {"aten.bitwise_xor.Scalar", Bitwise<Op::kXor>},
      {"aten.pow.Tensor_Scalar", PowTensorScalar},
      {"aten.pow.Tensor_Tensor", Pow},
      {"aten.pow.Scalar", Pow},
      {"aten.addcmul.default", AddCMul},
      {"aten.addcdiv.default", AddCDiv},
      {"aten.lerp.Scalar", Lerp},
      {"aten.lerp.Tensor", Lerp},
  };
}

}  // namespace stepone::passes
