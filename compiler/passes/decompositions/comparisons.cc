// Comparisons, choices and bounds.
#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::ComputeType;
using ir::DType;
using ir::Expr;
using ir::Op;
using ir::Scalar;

// The named operands in torch's result type of them all, which is `common`.
struct Operands {
  DType common = DType::kFloat32;
  std::vector<Expr> list;
};

Operands Promoted(CallSite& site, const std::vector<std::string_view>& names) {
  ir::ResultType type;
  for (const std::string_view name : names) {
    if (site.IsTensor(name)) {
      type.AddTensor(site.Tensor(name).type());
    } else {
      type.AddScalar(site.Number(name));
    }
  }
  Operands operands;
  operands.common = type.Get();
  for (const std::string_view name : names) {
    const Expr x = site.IsTensor(name) ? Cast(site.Tensor(name), operands.common)
                                       : site.builder().Full(site.Number(name), operands.common, {});
    operands.list.push_back(Wide(x));
  }
  return operands;
}

template <Op op>
Results Compare(CallSite& site) {
  const Operands operands = Promoted(site, {"self", "other"});
  return One(Binary(op, operands.list[0], operands.list[1]));
}

Expr AsBool(Expr x) { return Cast(x, DType::kBool); }

template <Op op>
Results Logical(CallSite& site) {
  return One(Binary(op, AsBool(site.Tensor("self")), AsBool(site.Tensor("other"))));
}

Results WhereRule(CallSite& site) {
  const Operands operands = Promoted(site, {"self", "other"});
  return One(Cast(Where(AsBool(site.Tensor("condition")), operands.list[0], operands.list[1]), operands.common));
}

// The result keeps the dtype of what is filled.
Results MaskedFill(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Expr value = site.IsTensor("value") ? Cast(site.Tensor("value"), x.dtype())
                                            : site.builder().Full(site.Number("value"), x.dtype(), {});
  if (value.rank() != 0) return Keep();
  return One(Cast(Where(AsBool(site.Tensor("mask")), Wide(value), Wide(x)), x.dtype()));
}

// Numbers bound 16-bit floats in float32; NaN stays NaN; with min above max, max wins.
Results Clamp(CallSite& site, std::string_view low, std::string_view high) {
  ir::ResultType type;
  const Expr x = site.Tensor("self");
  type.AddTensor(x.type());
  for (const std::string_view name : {low, high}) {
    if (site.IsNone(name)) continue;
    if (site.IsTensor(name)) {
      type.AddTensor(site.Tensor(name).type());
    } else {
      type.AddScalar(site.Number(name));
    }
  }
  const DType common = type.Get();
  if (common == DType::kBool) return Keep();
  const auto bound = [&](std::string_view name) {
    return site.IsTensor(name) ? Wide(Cast(site.Tensor(name), common))
                               : site.builder().Full(site.Number(name), ComputeType(common), {});
  };
  Expr result = Wide(Cast(x, common));
  if (!site.IsNone(low)) result = Binary(Op::kMaximum, result, bound(low));
  if (!site.IsNone(high)) result = Binary(Op::kMinimum, result, bound(high));
  return One(Cast(result, common));
}

Results ClampBoth(CallSite& site) { return Clamp(site, "min", "max"); }
Results ClampMin(CallSite& site) { return Clamp(site, "min", ""); }
Results ClampMax(CallSite& site) { return Clamp(site, "", "max"); }
Results Hardtanh(CallSite& site) { return Clamp(site, "min_val", "max_val"); }

}  // namespace

Rules ComparisonRules() {
  return {
      {"aten.eq.Tensor", Compare<Op::kEq>},
      {"aten.eq.Scalar", Compare<Op::kEq>},
      {"aten.ne.Tensor", Compare<Op::kNe>},
      {"aten.ne.Scalar", Compare<Op::kNe>},
      {"aten.lt.Tensor", Compare<Op::kLt>},
      {"aten.lt.Scalar", Compare<Op::kLt>},
      {"aten.le.Tensor", Compare<Op::kLe>},
      {"aten.le.Scalar", Compare<Op::kLe>},
      {"aten.gt.Tensor", Compare<Op::kGt>},
      {"aten.gt.Scalar", Compare<Op::kGt>},
      {"aten.ge.Tensor", Compare<Op::kGe>},
      {"aten.ge.Scalar", Compare<Op::kGe>},
      {"aten.logical_and.default", Logical<Op::kAnd>},
      {"aten.logical_or.default", Logical<Op::kOr>},
      {"aten.logical_xor.default", Logical<Op::kXor>},
      {"aten.where.self", WhereRule},
      {"aten.where.ScalarSelf", WhereRule},
      {"aten.where.ScalarOther", WhereRule},
      {"aten.where.Scalar", WhereRule},
      {"aten.masked_fill.Scalar", MaskedFill},
      {"aten.masked_fill.Tensor", MaskedFill},
      {"aten.clamp.default", ClampBoth},
      {"aten.clamp.Tensor", ClampBoth},
      {"aten.clamp_min.default", ClampMin},
      {"aten.clamp_min.Tensor", ClampMin},
      {"aten.clamp_max.default", ClampMax},
      {"aten.clamp_max.Tensor", ClampMax},
      {"aten.hardtanh.default", Hardtanh},
  };
}

}  // namespace stepone::passes
