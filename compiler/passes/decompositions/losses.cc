// Losses and their gradients.
#include <cmath>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::Dims;
using ir::DType;
using ir::Expr;
using ir::Op;

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// --- negative log likelihood: x is [C], [N, C] or [N, C, d1, ...], labels are the same without C
// ----------------------

struct Labels {
  Expr label;                  // 0 where ignored; i64
  Expr counts;                 // bool: not ignored
  int64_t dim = 0;             // of the classes in x
  std::optional<Expr> weight;  // of the classes, in the compute dtype
};

std::optional<Labels> ReadLabels(CallSite& site, Expr x) {
  const Expr target = site.Tensor("target");
  Labels labels;
  labels.dim = x.rank() == 1 ? 0 : 1;
  if (x.rank() == 0 || !IsFloat(x.dtype())) return std::nullopt;
  Dims expected = x.sizes();
  expected.erase(expected.begin() + labels.dim);
  if (target.sizes() != expected) return std::nullopt;
  const Expr label = Cast(target, DType::kInt64);
  labels.counts = Binary(Op::kNe, label, site.Int("ignore_index"));
  labels.label = Where(labels.counts, label, Like(label, int64_t{0}));
  if (const auto weight = site.OptionalTensor("weight")) labels.weight = Wide(*weight);
  return labels;
}

// A label that is neither a class nor ignored makes the gather fail when the kernel runs.
Results NllForward(CallSite& site) {
  const Expr x = site.Tensor("self");
  const auto labels = ReadLabels(site, x);
  if (!labels) return Keep();
  const Expr wide = Wide(x);
  const Expr index = Unsqueeze(labels->label, labels->dim);
  const Expr log_probability = Squeeze(Gather(wide, index, labels->dim), labels->dim);
  const Expr zero = Like(log_probability, 0.0);
  Expr weight = Where(labels->counts, Like(log_probability, 1.0), zero);
  Expr loss = Where(labels->counts, -log_probability, zero);
  if (labels->weight) {
    const Expr of_class = Take(*labels->weight, labels->label, 0, false);
    weight = Where(labels->counts, of_class, zero);
    loss = Where(labels->counts, -(log_probability * of_class), zero);
  }
  const int64_t reduction = site.Int("reduction");
  const Dims all = ir::AllDims(loss.rank());
  const DType dtype = x.dtype();
  if (reduction == kNone) return std::vector<Expr>{Cast(loss, dtype), site.builder().Full(0.0, dtype, {})};
  const Expr total = Reduce(Op::kSum, weight, all, false);
  Expr result = Reduce(Op::kSum, loss, all, false);
  if (reduction == kMean) result = result / total;
  return std::vector<Expr>{Cast(result, dtype), Cast(total, dtype)};
}

Results NllBackward(CallSite& site) {
  const Expr x = site.Tensor("self");
  const auto labels = ReadLabels(site, x);
  if (!labels) return Keep();
  ir::Builder& builder = site.builder();
  const int64_t reduction = site.Int("reduction");
  Expr gradient = -Wide(site.Tensor("grad_output"));
  if (reduction == kMean) gradient = gradient / Wide(site.Tensor("total_weight"));
  const bool each = reduction == kNone && gradient.rank() == labels->label.rank() && gradient.rank() > 0;
  if (each) gradient = Unsqueeze(gradient, labels->dim);
  const Expr position = builder.Iota(DType::kInt64, x.sizes(), labels->dim);
  const Expr hit = Binary(Op::kAnd, Binary(Op::kEq, position, Unsqueeze(labels->label, labels->dim)),
                          BroadcastTo(Unsqueeze(labels->counts, labels->dim), x.sizes()));
  if (labels->weight) {
    Dims along(x.rank(), 1);
    along[labels->dim] = x.size(labels->dim);
    gradient = gradient * Reshape(*labels->weight, along);
  }
  const Expr spread = BroadcastTo(gradient, x.sizes());
  return One(Cast(Where(hit, spread, Like(spread, 0.0)), x.dtype()));
}

// --- losses of two tensors
// --------------------------------------------------------------------------------------------

Results Reduced(CallSite& site, Expr loss, DType dtype) {
  const int64_t reduction = site.Int("reduction");
  const Dims all = ir::AllDims(loss.rank());
  if (reduction == kMean) loss = Mean(loss, all, false);
  if (reduction == kSum) loss = Reduce(Op::kSum, loss, all, false);
  return One(Cast(loss, dtype));
}

struct Sides {
  Expr x;
  Expr target;
  DType dtype = DType::kFloat32;  // of the result
};

std::optional<Sides> ReadSides(CallSite& site) {
  const Expr x = site.Tensor("self"), target = site.Tensor("target");
  if (!IsFloat(x.dtype()) || target.dtype() != x.dtype()) return std::nullopt;
  return Sides{Wide(x), Wide(target), x.dtype()};
}

template <Expr (*loss)(CallSite&, Expr x, Expr target)>
Results Loss(CallSite& site) {
  const auto sides = ReadSides(site);
  if (!sides) return Keep();
  return Reduced(site, loss(site, sides->x, sides->target), sides->dtype);
}

// The gradient of one element's loss, divided by their number for a mean, times what comes from upstream.
template <Expr (*slope)(CallSite&, Expr x, Expr target)>
Results LossBackward(CallSite& site) {
  const auto sides = ReadSides(site);
  if (!sides) return Keep();
  Expr gradient = slope(site, sides->x, sides->target);
  if (const auto weight = site.OptionalTensor("weight")) gradient = gradient * Wide(*weight);
  if (site.Int("reduction") == kMean) {
    gradient = gradient * (1.0 / static_cast<double>(gradient.type().NumElements()));
  }
  return One(Cast(gradient * Cast(site.Tensor("grad_output"), gradient.dtype()), sides->dtype));
}

Expr Squared(CallSite&, Expr x, Expr target) {
  const Expr d = x - target;
  return d * d;
}

Expr SquaredSlope(CallSite&, Expr x, Expr target) { return (x - target) * 2.0; }

Expr Absolute(CallSite&, Expr x, Expr target) { return Unary(Op::kAbs, x - target); }

// Quadratic below `edge`, with slope 1 there when divided by it.
Expr SmoothL1(CallSite& site, Expr x, Expr target) {
  const double beta = site.Float("beta");
  const Expr z = Unary(Op::kAbs, x - target);
  if (beta == 0) return z;
  return Where(Binary(Op::kLt, z, beta), 0.5 * z * z / beta, z - 0.5 * beta);
}

Expr SmoothL1Slope(CallSite& site, Expr x, Expr target) {
  const double beta = site.Float("beta");
  const Expr d = x - target;
  const Expr sign = Unary(Op::kSign, d);
  if (beta == 0) return sign;
  return Where(Binary(Op::kGe, Unary(Op::kAbs, d), beta), sign, d / beta);  // NaN stays NaN
}

Expr Huber(CallSite& site, Expr x, Expr target) {
  const double delta = site.Float("delta");
  const Expr z = Unary(Op::kAbs, x - target);
  return Where(Binary(Op::kLt, z, delta), 0.5 * z * z, delta * (z - 0.5 * delta));
}

// Logarithms are bounded at -100, as torch has it, so that the loss stays finite.
Expr BoundedLog(Expr x) { return Binary(Op::kMaximum, Unary(Op::kLog, x), -100.0); }

Expr CrossEntropy(CallSite& site, Expr x, Expr target) {
  Expr loss = (target - 1.0) * Binary(Op::kMaximum, Unary(Op::kLog1p, -x), -100.0) - target * BoundedLog(x);
  if (const auto weight = site.OptionalTensor("weight")) loss = loss * Wide(*weight);
  return loss;
}

Expr CrossEntropySlope(CallSite&, Expr x, Expr target) {
  return (x - target) / Binary(Op::kMaximum, (1.0 - x) * x, 1e-12);
}

Expr CrossEntropyOfLogits(CallSite& site, Expr x, Expr target) {
  // log(sigmoid(x)), without overflow on either side.
  const Expr log_sigmoid = Binary(Op::kMinimum, x, 0.0) - Unary(Op::kLog1p, Unary(Op::kExp, -Unary(Op::kAbs, x)));
  Expr factor = log_sigmoid;
  if (const auto positive = site.OptionalTensor("pos_weight")) {
    factor = (1.0 + (Wide(*positive) - 1.0) * target) * log_sigmoid;
  }
  Expr loss = (1.0 - target) * x - factor;
  if (const auto weight = site.OptionalTensor("weight")) loss = loss * Wide(*weight);
  return loss;
}

}  // namespace

Rules LossRules() {
  return {
      {"aten.nll_loss_forward.default", NllForward},
      {"aten.nll_loss2d_forward.default", NllForward},
      {"aten.nll_loss_backward.default", NllBackward},
      {"aten.nll_loss2d_backward.default", NllBackward},
      {"aten.mse_loss.default", Loss<Squared>},
      {"aten.mse_loss_backward.default", LossBackward<SquaredSlope>},
      {"aten.l1_loss.default", Loss<Absolute>},
      {"aten.smooth_l1_loss.default", Loss<SmoothL1>},
      {"aten.smooth_l1_loss_backward.default", LossBackward<SmoothL1Slope>},
      {"aten.huber_loss.default", Loss<Huber>},
      {"aten.binary_cross_entropy.default", Loss<CrossEntropy>},
      {"aten.binary_cross_entropy_backward.default", LossBackward<CrossEntropySlope>},
      {"aten.binary_cross_entropy_with_logits.default", Loss<CrossEntropyOfLogits>},
  };
}

}  // namespace stepone::passes
