// Normalisation over a row (layer norm) or over a group of channels. In float32 for 16-bit floats, rounded at
// the end, as torch's kernels do.
#include <algorithm>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::Dims;
using ir::DType;
using ir::Expr;
using ir::Op;

struct Stats {
  Expr centred;  // x - mean
  Expr mean;     // keeps the dims
  Expr rstd;     // keeps the dims
};

// Two passes over the data: the variance of centred values does not cancel.
Stats Normalised(Expr x, const Dims& dims, double eps) {
  const Expr mean = Mean(x, dims, true);
  const Expr centred = x - mean;
  const Expr variance = Mean(centred * centred, dims, true);
  return {centred, mean, Unary(Op::kRsqrt, variance + eps)};
}

// The last dims, as many as `normalized_shape` has and of those sizes; nullopt when they differ.
std::optional<Dims> NormalisedDims(CallSite& site, Expr x) {
  const Dims shape = site.Ints("normalized_shape");
  if (shape.empty() || static_cast<int64_t>(shape.size()) > x.rank() ||
      !std::equal(shape.rbegin(), shape.rend(), x.sizes().rbegin())) {
    site.builder().Fail("sizes", "'normalized_shape' is not the end of the input's sizes");
    return std::nullopt;
  }
  Dims dims;
  for (int64_t i = x.rank() - static_cast<int64_t>(shape.size()); i < x.rank(); ++i) dims.push_back(i);
  return dims;
}

Expr Saved(CallSite& site, Expr stat, int result) { return Cast(stat, site.ResultDType(stat, result)); }

Results LayerNorm(CallSite& site) {
  const Expr x = site.Tensor("input");
  if (!IsFloat(x.dtype())) return Keep();
  const auto dims = NormalisedDims(site, x);
  if (!dims) return Keep();
  const Expr wide = Wide(x);
  const Stats stats = Normalised(wide, *dims, site.Float("eps"));
  Expr y = stats.centred * stats.rstd;
  if (const auto weight = site.OptionalTensor("weight")) y = y * Cast(*weight, y.dtype());
  if (const auto bias = site.OptionalTensor("bias")) y = y + Cast(*bias, y.dtype());
  return std::vector<Expr>{Cast(y, x.dtype()), Saved(site, stats.mean, 1), Saved(site, stats.rstd, 2)};
}

// The gradient of y = (x - mean) * rstd by x, when `scaled` is y's: both means are over `dims`.
Expr NormBackward(Expr scaled, Expr normalised, Expr rstd, const Dims& dims) {
  const Expr along = Mean(scaled * normalised, dims, true);
  return (scaled - Mean(scaled, dims, true) - normalised * along) * rstd;
}

// Stands for a result that the mask leaves out.
Expr Nothing(CallSite& site, int result) {
  const ir::TensorType* type = site.Result(result);
  return type == nullptr ? site.builder().Full(0.0, DType::kFloat32, {0})
                         : site.builder().Full(0.0, type->dtype, type->sizes);
}

Results LayerNormBackward(CallSite& site) {
  const Expr gradient = site.Tensor("grad_out"), x = site.Tensor("input");
  if (!IsFloat(x.dtype())) return Keep();
  const auto dims = NormalisedDims(site, x);
  const std::vector<bool> mask = site.Bools("output_mask");
  if (!dims || mask.size() != 3) return Keep();
  const Expr wide = Wide(x), upstream = Cast(gradient, wide.dtype());
  const Expr rstd = Cast(site.Tensor("rstd"), wide.dtype());
  const Expr normalised = (wide - Cast(site.Tensor("mean"), wide.dtype())) * rstd;
  Dims rows;
  for (int64_t i = 0; i < dims->front(); ++i) rows.push_back(i);
  std::vector<Expr> results;
  for (int i = 0; i < 3; ++i) results.push_back(Nothing(site, i));
  if (mask[0]) {
    const auto weight = site.OptionalTensor("weight");
    const Expr scaled = weight ? upstream * Cast(*weight, wide.dtype()) : upstream;
    results[0] = Cast(NormBackward(scaled, normalised, rstd, *dims), x.dtype());
  }
  const auto parameter = [&](Expr e, int i) { return Cast(Reduce(Op::kSum, e, rows, false), site.ResultDType(x, i)); };
  if (mask[1]) results[1] = parameter(upstream * normalised, 1);
  if (mask[2]) results[2] = parameter(upstream, 2);
  return results;
}

// --- group norm: x as [N, groups, channels of a group, positions]
// -----------------------------------------------------

struct Groups {
  int64_t batch = 0, groups = 0, channels = 0, positions = 0;  // `channels` of one group
  Dims sizes() const { return {batch, groups, channels, positions}; }
  Dims per_channel() const { return {1, groups, channels, 1}; }
};

std::optional<Groups> ReadGroups(CallSite& site, Expr x) {
  Groups g{site.Int("N"), site.Int("group"), site.Int("C"), site.Int("HxW")};
  if (!IsFloat(x.dtype()) || g.groups <= 0 || g.channels % g.groups != 0) return std::nullopt;
  g.channels /= g.groups;
  return g;
}

Results GroupNorm(CallSite& site) {
  const Expr x = site.Tensor("input");
  const auto groups = ReadGroups(site, x);
  if (!groups) return Keep();
  const Expr wide = Reshape(Wide(x), groups->sizes());
  if (site.builder().failed()) return Keep();
  const Stats stats = Normalised(wide, {2, 3}, site.Float("eps"));
  Expr y = stats.centred * stats.rstd;
  if (const auto weight = site.OptionalTensor("weight")) {
    y = y * Reshape(Cast(*weight, y.dtype()), groups->per_channel());
  }
  if (const auto bias = site.OptionalTensor("bias")) y = y + Reshape(Cast(*bias, y.dtype()), groups->per_channel());
  const auto saved = [&](Expr stat, int i) { return Saved(site, Reshape(stat, {groups->batch, groups->groups}), i); };
  return std::vector<Expr>{Cast(Reshape(y, x.sizes()), x.dtype()), saved(stats.mean, 1), saved(stats.rstd, 2)};
}

Results GroupNormBackward(CallSite& site) {
  const Expr x = site.Tensor("input");
  const auto groups = ReadGroups(site, x);
  const std::vector<bool> mask = site.Bools("output_mask");
  if (!groups || mask.size() != 3) return Keep();
  const Expr wide = Reshape(Wide(x), groups->sizes());
  const Expr upstream = Reshape(Cast(site.Tensor("grad_out"), wide.dtype()), groups->sizes());
  if (site.builder().failed()) return Keep();
  const auto stat = [&](std::string_view name) {
    return Reshape(Cast(site.Tensor(name), wide.dtype()), {groups->batch, groups->groups, 1, 1});
  };
  const Expr rstd = stat("rstd");
  const Expr normalised = (wide - stat("mean")) * rstd;
  std::vector<Expr> results;
  for (int i = 0; i < 3; ++i) results.push_back(Nothing(site, i));
  if (mask[0]) {
    const auto weight = site.OptionalTensor("weight");
    const Expr scaled = weight ? upstream * Reshape(Cast(*weight, wide.dtype()), groups->per_channel()) : upstream;
    results[0] = Cast(Reshape(NormBackward(scaled, normalised, rstd, {2, 3}), x.sizes()), x.dtype());
  }
  const auto parameter = [&](Expr e, int i) {
    return Cast(Reshape(Reduce(Op::kSum, e, {0, 3}, false), {groups->groups * groups->channels}),
                site.ResultDType(x, i));
  };
  if (mask[1]) results[1] = parameter(upstream * normalised, 1);
  if (mask[2]) results[2] = parameter(upstream, 2);
  return results;
}

}  // namespace

Rules LayerNormRules() {
  return {
      {"aten.native_layer_norm.default", LayerNorm},
      {"aten.native_layer_norm_backward.default", LayerNormBackward},
      {"aten.native_group_norm.default", GroupNorm},
      {"aten.native_group_norm_backward.default", GroupNormBackward},
  };
}

}  // namespace stepone::passes
