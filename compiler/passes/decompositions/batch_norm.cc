// Batch norm: normalisation of each channel (dim 1) over everything else.
#include <algorithm>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::Dims;
using ir::DType;
using ir::Expr;
using ir::Op;

struct Channels {
  Dims reduced;    // all dims but 1
  Dims broadcast;  // [1, C, 1, ...]
  double count = 0;
};

std::optional<Channels> ReadChannels(Expr x) {
  if (x.rank() < 2 || !IsFloat(x.dtype()) || x.type().NumElements() == 0) return std::nullopt;
  Channels channels;
  channels.broadcast.assign(x.rank(), 1);
  channels.broadcast[1] = x.size(1);
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != 1) channels.reduced.push_back(i);
  }
  channels.count = static_cast<double>(x.type().NumElements() / x.size(1));
  return channels;
}

Expr Affine(CallSite& site, Expr y, const Channels& channels) {
  if (const auto weight = site.OptionalTensor("weight")) {
    y = y * Reshape(Cast(*weight, y.dtype()), channels.broadcast);
  }
  if (const auto bias = site.OptionalTensor("bias")) y = y + Reshape(Cast(*bias, y.dtype()), channels.broadcast);
  return y;
}

// Results 1 and 2: what the backward needs, empty when not training.
Expr Saved(CallSite& site, Expr stat, int i) {
  const ir::TensorType* type = site.Result(i);
  if (type == nullptr) return stat;
  if (type->NumElements() == 0) return site.builder().Full(0.0, type->dtype, type->sizes);
  return Cast(stat, type->dtype);
}

// What a running statistic becomes, in its own dtype.
Expr Updated(CallSite& site, std::string_view name, Expr batch, double momentum) {
  const Expr running = site.Tensor(name);
  const Expr wide = Wide(running);
  return Cast(Cast(batch, wide.dtype()) * momentum + wide * (1 - momentum), running.dtype());
}

struct Training {
  Expr y;
  Expr mean;
  Expr variance;  // biased
  Expr rstd;
};

Training Train(CallSite& site, Expr x, const Channels& channels) {
  const Expr mean = Mean(x, channels.reduced, false);
  const Expr centred = x - Reshape(mean, channels.broadcast);
  const Expr variance = Mean(centred * centred, channels.reduced, false);
  const Expr rstd = Unary(Op::kRsqrt, variance + site.Float("eps"));
  const Expr y = Affine(site, centred * Reshape(rstd, channels.broadcast), channels);
  return {y, mean, variance, rstd};
}

Expr Infer(CallSite& site, Expr x, const Channels& channels) {
  const Expr mean = Cast(site.Tensor("running_mean"), x.dtype());
  const Expr variance = Cast(site.Tensor("running_var"), x.dtype());
  const Expr rstd = Unary(Op::kRsqrt, variance + site.Float("eps"));
  return Affine(site, (x - Reshape(mean, channels.broadcast)) * Reshape(rstd, channels.broadcast), channels);
}

// Running statistics come back as results 3 and 4: the variance with n - 1, as torch keeps it.
Results Functional(CallSite& site) {
  const Expr x = site.Tensor("input");
  const auto channels = ReadChannels(x);
  if (!channels) return Keep();
  const Expr wide = Wide(x);
  if (!site.Bool("training")) {
    const Expr y = Cast(Infer(site, wide, *channels), x.dtype());
    const Expr mean = site.Tensor("running_mean"), variance = site.Tensor("running_var");
    return std::vector<Expr>{y, Saved(site, mean, 1), Saved(site, variance, 2), mean, variance};
  }
  const Training t = Train(site, wide, *channels);
  const double momentum = site.Float("momentum");
  const Expr unbiased = t.variance * (channels->count / (channels->count - 1));
  return std::vector<Expr>{Cast(t.y, x.dtype()), Saved(site, t.mean, 1), Saved(site, t.rstd, 2),
                           Updated(site, "running_mean", t.mean, momentum),
                           Updated(site, "running_var", unbiased, momentum)};
}

// Without running statistics, or with ones that do not change.
Results Stateless(CallSite& site) {
  const Expr x = site.Tensor("input");
  const auto channels = ReadChannels(x);
  if (!channels) return Keep();
  const Expr wide = Wide(x);
  const bool training = site.IsNone("training") ? false : site.Bool("training");
  if (!training) {
    if (site.IsNone("running_mean") || site.IsNone("running_var")) return Keep();
    const Expr y = Cast(Infer(site, wide, *channels), x.dtype());
    return std::vector<Expr>{y, Saved(site, site.Tensor("running_mean"), 1),
                             Saved(site, site.Tensor("running_var"), 2)};
  }
  if (!site.IsNone("running_mean") || !site.IsNone("running_var")) return Keep();
  const Training t = Train(site, wide, *channels);
  return std::vector<Expr>{Cast(t.y, x.dtype()), Saved(site, t.mean, 1), Saved(site, t.rstd, 2)};
}

Results Backward(CallSite& site) {
  const Expr x = site.Tensor("input");
  const auto channels = ReadChannels(x);
  const std::vector<bool> mask = site.Bools("output_mask");
  if (!channels || mask.size() != 3) return Keep();
  const Expr wide = Wide(x), upstream = Cast(site.Tensor("grad_out"), wide.dtype());
  const bool training = site.Bool("train");
  const auto stat = [&](std::string_view name) { return Cast(site.Tensor(name), wide.dtype()); };
  const Expr mean = stat(training ? "save_mean" : "running_mean");
  const Expr rstd = training ? stat("save_invstd") : Unary(Op::kRsqrt, stat("running_var") + site.Float("eps"));
  const auto spread = [&](Expr e) { return Reshape(e, channels->broadcast); };
  const Expr centred = wide - spread(mean);
  const Expr sum = Reduce(Op::kSum, upstream, channels->reduced, false);
  const Expr along = Reduce(Op::kSum, upstream * centred, channels->reduced, false);
  std::vector<Expr> results = {x, x, x};
  if (mask[0]) {
    const auto weight = site.OptionalTensor("weight");
    const Expr scale = weight ? rstd * Cast(*weight, wide.dtype()) : rstd;
    Expr gradient = upstream;
    if (training) {
      const Expr slope = along * rstd * rstd / channels->count;
      gradient = upstream - spread(sum / channels->count) - centred * spread(slope);
    }
    results[0] = Cast(gradient * spread(scale), x.dtype());
  }
  if (mask[1]) results[1] = Cast(along * rstd, site.ResultDType(x, 1));
  if (mask[2]) results[2] = Cast(sum, site.ResultDType(x, 2));
  for (int i = 0; i < 3; ++i) {
    const ir::TensorType* type = site.Result(i);
    if (!mask[i] && type != nullptr) results[i] = site.builder().Full(0.0, type->dtype, type->sizes);
  }
  return results;
}

}  // namespace

Rules BatchNormRules() {
  return {
      {"aten._native_batch_norm_legit_functional.default", Functional},
      {"aten._native_batch_norm_legit.no_stats", Stateless},
      {"aten._native_batch_norm_legit_no_training.default", Stateless},
      {"aten.native_batch_norm.default", Stateless},
      {"aten.native_batch_norm_backward.default", Backward},
  };
}

}  // namespace stepone::passes
