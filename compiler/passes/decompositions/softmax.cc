// Softmax and its relatives. torch's kernels compute in float32 for 16-bit floats and round once.
#include <limits>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::Expr;
using ir::Op;

// A softmax's operand with at least one dim, and the dim that it runs along.
struct Rows {
  Expr x;
  ir::Dims dims;
};

std::optional<Rows> ReadRows(CallSite& site, Expr x) {
  if (!IsFloat(x.dtype()) || x.type().NumElements() == 0) return std::nullopt;
  return Rows{AtLeast1d(Wide(x)), {WrapDim(site.builder(), site.Int("dim"), x.rank())}};
}

Results Finish(CallSite& site, Expr result, Expr like) {
  return One(Cast(Reshape(result, like.sizes()), site.ResultDType(like)));
}

Expr SoftmaxOf(Expr x, Expr maximum, const ir::Dims& dims) {
  const Expr e = Unary(Op::kExp, x - maximum);
  return e / Reduce(Op::kSum, e, dims, true);
}

Results Softmax(CallSite& site) {
  const Expr x = site.Tensor("self");
  const auto rows = ReadRows(site, x);
  if (!rows) return Keep();
  return Finish(site, SoftmaxOf(rows->x, Reduce(Op::kMax, rows->x, rows->dims, true), rows->dims), x);
}

// A row of nothing but minus infinity gives zeros and not NaN.
Results SafeSoftmax(CallSite& site) {
  const Expr x = site.Tensor("self");
  const auto rows = ReadRows(site, x);
  if (!rows) return Keep();
  const Expr maximum = Reduce(Op::kMax, rows->x, rows->dims, true);
  const Expr softmax = SoftmaxOf(rows->x, maximum, rows->dims);
  const Expr masked = Binary(Op::kEq, maximum, -std::numeric_limits<double>::infinity());
  return Finish(site, Where(masked, Like(softmax, 0.0), softmax), x);
}

Results LogSoftmax(CallSite& site) {
  const Expr x = site.Tensor("self");
  const auto rows = ReadRows(site, x);
  if (!rows) return Keep();
  const Expr shifted = rows->x - Reduce(Op::kMax, rows->x, rows->dims, true);
  const Expr sum = Reduce(Op::kSum, Unary(Op::kExp, shifted), rows->dims, true);
  return Finish(site, shifted - Unary(Op::kLog, sum), x);
}

Results SoftmaxBackward(CallSite& site) {
  const Expr gradient = site.Tensor("grad_output"), output = site.Tensor("output");
  const auto rows = ReadRows(site, gradient);
  if (!rows || output.sizes() != gradient.sizes() || !IsFloat(output.dtype())) return Keep();
  const Expr y = Cast(AtLeast1d(output), rows->x.dtype());
  const Expr sum = Reduce(Op::kSum, rows->x * y, rows->dims, true);
  return Finish(site, (rows->x - sum) * y, gradient);
}

Results LogSoftmaxBackward(CallSite& site) {
  const Expr gradient = site.Tensor("grad_output"), output = site.Tensor("output");
  const auto rows = ReadRows(site, gradient);
  if (!rows || output.sizes() != gradient.sizes() || !IsFloat(output.dtype())) return Keep();
  const Expr y = Cast(AtLeast1d(output), rows->x.dtype());
  const Expr sum = Reduce(Op::kSum, rows->x, rows->dims, true);
  return Finish(site, rows->x - Unary(Op::kExp, y) * sum, gradient);
}

}  // namespace

Rules SoftmaxRules() {
  return {
      {"aten._softmax.default", Softmax},
      {"aten._safe_softmax.default", SafeSoftmax},
      {"aten._log_softmax.default", LogSoftmax},
      {"aten._softmax_backward_data.default", SoftmaxBackward},
      {"aten._log_softmax_backward_data.default", LogSoftmaxBackward},
  };
}

}  // namespace stepone::passes
