// Dropout and random numbers, from the kernels' own generator: one seed per run of the graph, one stream per call,
// numbered in the graph's order.
#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::DType;
using ir::Expr;
using ir::Op;

// True with probability `p`.
Expr Chance(CallSite& site, const ir::Dims& sizes, double p) {
  return Binary(Op::kLt, site.builder().Random(sizes), p);
}

Results NativeDropout(CallSite& site) {
  const Expr x = site.Tensor("input");
  if (!IsFloat(x.dtype())) return Keep();
  const double p = site.Float("p");
  const bool train = site.IsNone("train") || site.Bool("train");
  ir::Builder& builder = site.builder();
  if (!train || p == 0) return std::vector<Expr>{x, builder.Full(true, DType::kBool, x.sizes())};
  if (p == 1) {
    return std::vector<Expr>{builder.Full(0.0, x.dtype(), x.sizes()), builder.Full(false, DType::kBool, x.sizes())};
  }
  const Expr mask = Chance(site, x.sizes(), 1 - p);
  const Expr wide = Wide(x);
  return std::vector<Expr>{Cast(wide * Cast(mask, wide.dtype()) * (1 / (1 - p)), x.dtype()), mask};
}

Results NativeDropoutBackward(CallSite& site) {
  const Expr gradient = site.Tensor("grad_output"), mask = site.Tensor("mask");
  if (!IsFloat(gradient.dtype()) || mask.dtype() != DType::kBool) return Keep();
  const Expr wide = Wide(gradient);
  return One(Cast(wide * (Cast(mask, wide.dtype()) * site.Float("scale")), gradient.dtype()));
}

// Uniform in [0, 1); 16-bit floats could round up to 1 and are left to torch.
Results Rand(CallSite& site) {
  const ir::TensorType& type = site.ResultType();
  if (type.dtype != DType::kFloat32) return Keep();
  return One(site.builder().Random(type.sizes));
}

Results Uniform(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (x.dtype() != DType::kFloat32) return Keep();
  const double from = site.Float("from"), to = site.Float("to");
  return One(site.builder().Random(x.sizes()) * (to - from) + from);
}

Results BernoulliP(CallSite& site) {
  const Expr x = site.Tensor("self");
  return One(Cast(Chance(site, x.sizes(), site.Float("p")), x.dtype()));
}

// Each element is its own probability.
Results Bernoulli(CallSite& site) {
  const Expr p = site.Tensor("self");
  if (!IsFloat(p.dtype())) return Keep();
  const Expr random = Cast(site.builder().Random(p.sizes()), ir::ComputeType(p.dtype()));
  return One(Cast(Binary(Op::kLt, random, Wide(p)), p.dtype()));
}

}  // namespace

Rules RandomRules() {
  return {
      {"aten.native_dropout.default", NativeDropout},
      {"aten.native_dropout_backward.default", NativeDropoutBackward},
      {"aten.rand.default", Rand},
      {"aten.rand_like.default", Rand},
      {"aten.uniform.default", Uniform},
      {"aten.bernoulli.p", BernoulliP},
      {"aten.bernoulli.default", Bernoulli},
  };
}

}  // namespace stepone::passes
