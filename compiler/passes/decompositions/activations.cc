// Activation functions. torch's kernels compute them in float32 for 16-bit floats and round once, at the end.
#include <cmath>
#include <numbers>

#include "compiler/passes/decompositions/activations.h"
#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {

using ir::Expr;
using ir::Op;

Expr Logistic(Expr x) { return Unary(Op::kSigmoid, x); }

Expr GeluInner(Expr x) {
  constexpr double kBeta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi * 2 * 0.5;
  return (x + x * x * x * kGeluKappa) * kBeta;
}

Expr Softplus(Expr x, double beta, double threshold) {
  const Expr scaled = beta == 1 ? x : x * beta;
  Expr soft = Unary(Op::kLog1p, Unary(Op::kExp, scaled));
  if (beta != 1) soft = soft / beta;
  return Where(Binary(Op::kGt, scaled, threshold), x, soft);
}

namespace {

// Rules see x in float32 at least; what they return is rounded to x's dtype.
template <Expr (*function)(CallSite&, Expr)>
Results Activation(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (!IsFloat(x.dtype())) return Keep();
  return One(Cast(function(site, Wide(x)), x.dtype()));
}

Expr Silu(CallSite&, Expr x) { return x / (1.0 + Unary(Op::kExp, -x)); }

Expr Gelu(CallSite& site, Expr x) {
  if (site.String("approximate") == "tanh") return 0.5 * x * (1.0 + Unary(Op::kTanh, GeluInner(x)));
  return x * 0.5 * (1.0 + Unary(Op::kErf, x * (1 / std::numbers::sqrt2)));
}

Expr LeakyRelu(CallSite& site, Expr x) { return Where(Binary(Op::kGt, x, 0.0), x, x * site.Float("negative_slope")); }

Expr Elu(CallSite& site, Expr x) {
  const double alpha = site.Float("alpha"), scale = site.Float("scale"), input_scale = site.Float("input_scale");
  const Expr negative = Unary(Op::kExpm1, x * input_scale) * (alpha * scale);
  return Where(Binary(Op::kLe, x, 0.0), negative, x * scale);
}

Expr SoftplusRule(CallSite& site, Expr x) { return Softplus(x, site.Float("beta"), site.Float("threshold")); }

Expr Mish(CallSite&, Expr x) { return x * Unary(Op::kTanh, Unary(Op::kLog1p, Unary(Op::kExp, x))); }

Expr Relu6Of(Expr x) { return Binary(Op::kMinimum, Binary(Op::kMaximum, x, 0.0), 6.0); }

Expr Hardswish(CallSite&, Expr x) { return x * Relu6Of(x + 3.0) / 6.0; }

Expr Hardsigmoid(CallSite&, Expr x) { return Relu6Of(x + 3.0) / 6.0; }

// min(0, x) - log1p(exp(-|x|)); the second result is a buffer that its backward reads.
Results LogSigmoidForward(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (!IsFloat(x.dtype()) || site.num_results() != 2) return Keep();
  const Expr wide = Wide(x);
  const Expr buffer = Unary(Op::kExp, -Unary(Op::kAbs, wide));
  const Expr result = Binary(Op::kMinimum, wide, 0.0) - Unary(Op::kLog1p, buffer);
  const ir::TensorType* saved = site.Result(1);
  // Elsewhere than on the CPU the buffer is empty.
  if (saved != nullptr && saved->sizes != x.sizes()) return Keep();
  return std::vector<Expr>{Cast(result, x.dtype()), Cast(buffer, x.dtype())};
}

}  // namespace

Rules ActivationRules() {
  return {
      {"aten.silu.default", Activation<Silu>},
      {"aten.gelu.default", Activation<Gelu>},
      {"aten.leaky_relu.default", Activation<LeakyRelu>},
      {"aten.elu.default", Activation<Elu>},
      {"aten.softplus.default", Activation<SoftplusRule>},
      {"aten.mish.default", Activation<Mish>},
      {"aten.hardswish.default", Activation<Hardswish>},
      {"aten.hardsigmoid.default", Activation<Hardsigmoid>},
      {"aten.log_sigmoid_forward.default", LogSigmoidForward},
  };
}

}  // namespace stepone::passes
