// Gradients of activation functions, in float32 for 16-bit floats.
#include <cmath>
#include <numbers>

#include "compiler/passes/decompositions/activations.h"
#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::Expr;
using ir::Op;

// `function` gets the upstream gradient and the saved tensor, both of float32 at least.
template <Expr (*function)(CallSite&, Expr gradient, Expr saved)>
Results Backward(CallSite& site, std::string_view saved_name) {
  const Expr gradient = site.Tensor("grad_output"), saved = site.Tensor(saved_name);
  if (!IsFloat(gradient.dtype()) || !IsFloat(saved.dtype())) return Keep();
  const ir::DType common = ir::Promote(gradient.dtype(), saved.dtype());
  const ir::DType compute = ir::ComputeType(common);
  return One(Cast(function(site, Cast(gradient, compute), Cast(saved, compute)), common));
}

template <Expr (*function)(CallSite&, Expr, Expr)>
Results OfInput(CallSite& site) {
  return Backward<function>(site, "self");
}

template <Expr (*function)(CallSite&, Expr, Expr)>
Results OfOutput(CallSite& site) {
  return Backward<function>(site, "output");
}

Expr Threshold(CallSite& site, Expr gradient, Expr x) {
  return Where(Binary(Op::kLe, x, site.Number("threshold")), Like(gradient, 0.0), gradient);
}

Expr Tanh(CallSite&, Expr gradient, Expr y) { return gradient * (1.0 - y * y); }

Expr Sigmoid(CallSite&, Expr gradient, Expr y) { return gradient * (1.0 - y) * y; }

Expr Silu(CallSite&, Expr gradient, Expr x) {
  const Expr s = Logistic(x);
  return gradient * s * (1.0 + x * (1.0 - s));
}

Expr Gelu(CallSite& site, Expr gradient, Expr x) {
  if (site.String("approximate") == "tanh") {
    constexpr double kBeta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi * 2 * 0.5;
    const Expr t = Unary(Op::kTanh, GeluInner(x));
    const Expr inner_slope = (1.0 + x * x * (3 * kGeluKappa)) * kBeta;
    const Expr slope = 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner_slope;
    return gradient * slope;
  }
  constexpr double kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;  // of the normal distribution at 0
  const Expr cdf = 0.5 * (1.0 + Unary(Op::kErf, x * (1 / std::numbers::sqrt2)));
  const Expr pdf = Unary(Op::kExp, x * x * -0.5) * kDensity;
  return gradient * (cdf + x * pdf);
}

Expr LeakyRelu(CallSite& site, Expr gradient, Expr x) {
  return Where(Binary(Op::kGt, x, 0.0), gradient, gradient * site.Float("negative_slope"));
}

Expr Hardtanh(CallSite& site, Expr gradient, Expr x) {
  const Expr outside =
      Binary(Op::kOr, Binary(Op::kLe, x, site.Number("min_val")), Binary(Op::kGe, x, site.Number("max_val")));
  return Where(outside, Like(gradient, 0.0), gradient);
}

Expr Elu(CallSite& site, Expr gradient, Expr saved) {
  const double alpha = site.Float("alpha"), scale = site.Float("scale"), input_scale = site.Float("input_scale");
  const double negative = alpha * scale;
  const Expr slope = site.Bool("is_result") ? (saved + negative) * input_scale
                                            : Unary(Op::kExp, saved * input_scale) * (input_scale * negative);
  return gradient * Where(Binary(Op::kLe, saved, 0.0), slope, Like(saved, scale));
}

Results EluRule(CallSite& site) { return Backward<Elu>(site, "self_or_result"); }

Expr SoftplusOf(CallSite& site, Expr gradient, Expr x) {
  const double beta = site.Float("beta");
  const Expr scaled = beta == 1 ? x : x * beta;
  const Expr z = Unary(Op::kExp, scaled);
  return Where(Binary(Op::kGt, scaled, site.Number("threshold")), gradient, gradient * z / (z + 1.0));
}

Expr Mish(CallSite&, Expr gradient, Expr x) {
  const Expr t = Unary(Op::kTanh, Unary(Op::kLog1p, Unary(Op::kExp, x)));
  return gradient * (t + x * Logistic(x) * (1.0 - t * t));
}

Expr Hardswish(CallSite&, Expr gradient, Expr x) {
  const Expr middle = gradient * (x / 3.0 + 0.5);
  const Expr zero = Like(gradient, 0.0);
  return Where(Binary(Op::kLe, x, -3.0), zero, Where(Binary(Op::kLt, x, 3.0), middle, gradient));
}

Expr Hardsigmoid(CallSite&, Expr gradient, Expr x) {
  const Expr inside = Binary(Op::kAnd, Binary(Op::kGt, x, -3.0), Binary(Op::kLt, x, 3.0));
  return Where(inside, gradient * (1.0 / 6.0), Like(gradient, 0.0));
}

// Slope of log(sigmoid(x)): 1 - sigmoid(x), from the exp(-|x|) that the forward saved.
Results LogSigmoid(CallSite& site) {
  const Expr gradient = site.Tensor("grad_output"), x = site.Tensor("self"), buffer = site.Tensor("buffer");
  if (!IsFloat(x.dtype()) || gradient.dtype() != x.dtype() || buffer.sizes() != x.sizes()) return Keep();
  const Expr wide = Wide(x), z = Wide(buffer);
  const Expr negative = Binary(Op::kLt, wide, 0.0);
  const Expr max_derivative = Where(negative, Like(wide, 1.0), Like(wide, 0.0));
  const Expr sign = Where(negative, Like(wide, 1.0), Like(wide, -1.0));
  return One(Cast((max_derivative - sign * (z / (1.0 + z))) * Wide(gradient), x.dtype()));
}

}  // namespace

Rules ActivationBackwardRules() {
  return {
      {"aten.threshold_backward.default", OfInput<Threshold>},
      {"aten.tanh_backward.default", OfOutput<Tanh>},
      {"aten.sigmoid_backward.default", OfOutput<Sigmoid>},
      {"aten.silu_backward.default", OfInput<Silu>},
      {"aten.gelu_backward.default", OfInput<Gelu>},
      {"aten.leaky_relu_backward.default", OfInput<LeakyRelu>},
      {"aten.hardtanh_backward.default", OfInput<Hardtanh>},
      {"aten.elu_backward.default", EluRule},
      {"aten.softplus_backward.default", OfInput<SoftplusOf>},
      {"aten.mish_backward.default", OfInput<Mish>},
      {"aten.hardswish_backward.default", OfInput<Hardswish>},
      {"aten.hardsigmoid_backward.default", OfInput<Hardsigmoid>},
      {"aten.log_sigmoid_backward.default", LogSigmoid},
  };
}

}  // namespace stepone::passes
