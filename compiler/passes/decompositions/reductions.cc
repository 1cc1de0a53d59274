// Sums, means, variances, extremes, norms.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::Dims;
using ir::DType;
using ir::Expr;
using ir::Op;

struct Over {
  Dims dims;
  bool keepdim = false;
};

// What a call reduces over: None and an empty list mean everything.
Over ReadOver(CallSite& site, Expr x, std::string_view name = "dim") {
  Over over;
  over.dims = WrapDims(site.builder(), site.OptionalInts(name), x.rank(), true);
  over.keepdim = !site.IsNone("keepdim") && site.Bool("keepdim");
  return over;
}

// In the result's dtype, 16-bit floats added up in float32.
Results SumOrProd(CallSite& site, Op op) {
  const Expr x = site.Tensor("self");
  const Over over = ReadOver(site, x);
  const DType dtype = site.ResultDType(x);
  if (dtype == DType::kBool || (IsFloat(x.dtype()) && !IsFloat(dtype))) return Keep();
  return One(Cast(Reduce(op, Cast(x, ir::ComputeType(dtype)), over.dims, over.keepdim), dtype));
}

Results Sum(CallSite& site) { return SumOrProd(site, Op::kSum); }
Results Prod(CallSite& site) { return SumOrProd(site, Op::kProd); }

Results MeanRule(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Over over = ReadOver(site, x);
  const DType dtype = site.ResultDType(x);
  if (!IsFloat(dtype)) return Keep();
  return One(Cast(Mean(Cast(x, ir::ComputeType(dtype)), over.dims, over.keepdim), dtype));
}

// Two passes: the squares of the distances from the mean. NaN where there are no more elements than `correction`.
struct Moments {
  Expr mean;      // keeps the dims
  Expr variance;  // keeps the dims
};

Moments VarianceOf(Expr x, const Over& over, double correction) {
  const double count = static_cast<double>(ReducedCount(x, over.dims));
  const Expr mean = Mean(x, over.dims, true);
  const Expr distance = x - mean;
  const Expr sum = Reduce(Op::kSum, distance * distance, over.dims, true);
  return {mean, sum / std::max(0.0, count - correction)};
}

Expr Drop(Expr x, const Over& over) {
  if (over.keepdim || x.rank() == 0) return x;
  Dims sizes;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (!std::binary_search(over.dims.begin(), over.dims.end(), i)) sizes.push_back(x.size(i));
  }
  return Reshape(x, sizes);
}

double Correction(CallSite& site) {
  if (!site.IsNone("unbiased")) return site.Bool("unbiased") ? 1 : 0;
  return site.IsNone("correction") ? 1 : site.Float("correction");
}

enum class Wants { kVariance, kDeviation, kBoth };

template <Wants wants>
Results Variance(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (!IsFloat(x.dtype())) return Keep();
  const Over over = ReadOver(site, x);
  const Moments moments = VarianceOf(Wide(x), over, Correction(site));
  const auto finish = [&](Expr e) { return Cast(Drop(e, over), x.dtype()); };
  if (wants == Wants::kBoth) return std::vector<Expr>{finish(moments.variance), finish(moments.mean)};
  return One(finish(wants == Wants::kDeviation ? Unary(Op::kSqrt, moments.variance) : moments.variance));
}

// --- extremes ---

bool NothingToCompare(Expr x, const Dims& dims) { return x.type().NumElements() == 0 || ReducedCount(x, dims) == 0; }

template <Op op>
Results Extreme(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Over over = ReadOver(site, x);
  if (NothingToCompare(x, over.dims)) return Keep();
  return One(Cast(Reduce(op, Wide(x), over.dims, over.keepdim), x.dtype()));
}

template <Op value_op, Op index_op>
Results ExtremeWithIndex(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Over over = ReadOver(site, x);
  if (over.dims.size() > 1 || NothingToCompare(x, over.dims)) return Keep();
  const Expr wide = Wide(x);
  const Expr value = Cast(Reduce(value_op, wide, over.dims, over.keepdim), x.dtype());
  return std::vector<Expr>{value, Reduce(index_op, wide, over.dims, over.keepdim)};
}

template <Op op>
Results ArgExtreme(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Over over = ReadOver(site, x);
  if (NothingToCompare(x, over.dims)) return Keep();
  return One(Reduce(op, Wide(x), over.dims, over.keepdim));
}

template <Op op>
Results Truth(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Over over = ReadOver(site, x);
  const DType dtype = site.ResultDType(x);  // uint8 stays uint8
  return One(Cast(Reduce(op, Cast(x, DType::kBool), over.dims, over.keepdim), dtype));
}

// --- norms ---

// log(sum(exp(x - m))) + m, where m is the maximum, or 0 where that is infinite.
Results LogSumExp(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Over over = ReadOver(site, x);
  if (!IsFloat(x.dtype()) || NothingToCompare(x, over.dims)) return Keep();
  const Expr wide = Wide(x);
  const Expr maximum = Reduce(Op::kMax, wide, over.dims, true);
  const Expr infinite = Binary(Op::kEq, Unary(Op::kAbs, maximum), std::numeric_limits<double>::infinity());
  const Expr shift = Where(infinite, Like(maximum, 0.0), maximum);
  const Expr sum = Reduce(Op::kSum, Unary(Op::kExp, wide - shift), over.dims, true);
  return One(Cast(Drop(Unary(Op::kLog, sum) + shift, over), x.dtype()));
}

Results VectorNorm(CallSite& site, double order) {
  const Expr x = site.Tensor("self");
  const Over over = ReadOver(site, x);
  const DType dtype = site.ResultDType(x);
  if (!IsFloat(x.dtype()) || !IsFloat(dtype)) return Keep();
  const Expr wide = Cast(x, ir::ComputeType(dtype));
  const Expr size = Unary(Op::kAbs, wide);
  const auto reduce = [&](Op op, Expr e) { return Reduce(op, e, over.dims, over.keepdim); };
  Expr result = size;
  if (std::isinf(order)) {
    if (NothingToCompare(x, over.dims)) return Keep();
    result = reduce(order > 0 ? Op::kMax : Op::kMin, size);
  } else if (order == 0) {
    result = reduce(Op::kSum, Cast(Binary(Op::kNe, wide, 0.0), wide.dtype()));
  } else if (order == 1) {
    result = reduce(Op::kSum, size);
  } else if (order == 2) {
    result = Unary(Op::kSqrt, reduce(Op::kSum, wide * wide));
  } else {
    const Expr sum = reduce(Op::kSum, Binary(Op::kPow, size, order));
    result = Binary(Op::kPow, sum, 1 / order);
  }
  return One(Cast(result, dtype));
}

Results LinalgVectorNorm(CallSite& site) { return VectorNorm(site, site.Float("ord")); }
Results Norm(CallSite& site) { return VectorNorm(site, site.IsNone("p") ? 2 : site.Float("p")); }

}  // namespace

Rules ReductionRules() {
  return {
      {"aten.sum.default", Sum},
      {"aten.sum.dim_IntList", Sum},
      {"aten.prod.default", Prod},
      {"aten.prod.dim_int", Prod},
      {"aten.mean.default", MeanRule},
      {"aten.mean.dim", MeanRule},
      {"aten.var.default", Variance<Wants::kVariance>},
      {"aten.var.dim", Variance<Wants::kVariance>},
      {"aten.var.correction", Variance<Wants::kVariance>},
      {"aten.std.default", Variance<Wants::kDeviation>},
      {"aten.std.dim", Variance<Wants::kDeviation>},
      {"aten.std.correction", Variance<Wants::kDeviation>},
      {"aten.var_mean.default", Variance<Wants::kBoth>},
      {"aten.var_mean.dim", Variance<Wants::kBoth>},
      {"aten.var_mean.correction", Variance<Wants::kBoth>},
      {"aten.amax.default", Extreme<Op::kMax>},
      {"aten.amin.default", Extreme<Op::kMin>},
      {"aten.max.default", Extreme<Op::kMax>},
      {"aten.min.default", Extreme<Op::kMin>},
      {"aten.max.dim", ExtremeWithIndex<Op::kMax, Op::kArgMax>},
      {"aten.min.dim", ExtremeWithIndex<Op::kMin, Op::kArgMin>},
      {"aten.argmax.default", ArgExtreme<Op::kArgMax>},
      {"aten.argmin.default", ArgExtreme<Op::kArgMin>},
      {"aten.any.default", Truth<Op::kAny>},
      {"aten.any.dim", Truth<Op::kAny>},
      {"aten.any.dims", Truth<Op::kAny>},
      {"aten.all.default", Truth<Op::kAll>},
      {"aten.all.dim", Truth<Op::kAll>},
      {"aten.all.dims", Truth<Op::kAll>},
      {"aten.logsumexp.default", LogSumExp},
      {"aten.linalg_vector_norm.default", LinalgVectorNorm},
      {"aten.norm.Scalar", Norm},
      {"aten.norm.ScalarOpt_dim", Norm},
      {"aten.norm.ScalarOpt_dim_dtype", Norm},
      {"aten.norm.ScalarOpt_dtype", Norm},
  };
}

}  // namespace stepone::passes
