// Tensors out of nothing: constants, ranges, triangles.
#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::DType;
using ir::Expr;
using ir::Op;
using ir::Scalar;

Expr FullResult(CallSite& site, const Scalar& value) {
  const ir::TensorType& type = site.ResultType();
  return site.builder().Full(value, type.dtype, type.sizes);
}

template <int value>
Results Constant(CallSite& site) {
  return One(FullResult(site, int64_t{value}));
}

Results Full(CallSite& site) { return One(FullResult(site, site.Number("fill_value"))); }

Results ScalarTensor(CallSite& site) { return One(FullResult(site, site.Number("s"))); }

Results Fill(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (site.IsNumber("value")) return One(site.builder().Full(site.Number("value"), x.dtype(), x.sizes()));
  const Expr value = site.Tensor("value");
  if (value.rank() != 0) return Keep();
  return One(BroadcastTo(Cast(value, x.dtype()), x.sizes()));
}

// Whatever is in memory: zeros are as good, and the same each time.
Results Empty(CallSite& site) { return One(FullResult(site, int64_t{0})); }

Results Range(CallSite& site, const Scalar& start, const Scalar& step) {
  const ir::TensorType& type = site.ResultType();
  if (type.rank() != 1) {
    site.builder().Fail("sizes", "a range has one dim");
    return Keep();
  }
  if (IsFloat(type.dtype)) {
    const DType compute = ir::ComputeType(type.dtype);
    return One(Cast(site.builder().Iota(compute, type.sizes, 0, ir::ToDouble(start), ir::ToDouble(step)), type.dtype));
  }
  if (type.dtype == DType::kBool || std::holds_alternative<double>(step)) return Keep();
  return One(site.builder().Iota(type.dtype, type.sizes, 0, start, step));
}

Results Arange(CallSite& site) { return Range(site, int64_t{0}, int64_t{1}); }
Results ArangeStart(CallSite& site) { return Range(site, site.Number("start"), int64_t{1}); }
Results ArangeStep(CallSite& site) { return Range(site, site.Number("start"), site.Number("step")); }

// Row i and column j stay where `keep` says so of j - i and the diagonal's number.
Results Triangle(CallSite& site, Op keep) {
  const Expr x = site.Tensor("self");
  if (x.rank() < 2) return Keep();
  ir::Builder& builder = site.builder();
  const ir::Dims plane = {x.size(x.rank() - 2), x.size(x.rank() - 1)};
  const Expr row = builder.Iota(DType::kInt64, plane, 0, site.Int("diagonal"));
  const Expr column = builder.Iota(DType::kInt64, plane, 1);
  const Expr wide = Wide(x);
  return One(Cast(Where(Binary(keep, column, row), wide, Like(wide, int64_t{0})), x.dtype()));
}

Results Tril(CallSite& site) { return Triangle(site, Op::kLe); }
Results Triu(CallSite& site) { return Triangle(site, Op::kGe); }

}  // namespace

Rules CreationRules() {
  return {
      {"aten.full.default", Full},
      {"aten.full_like.default", Full},
      {"aten.new_full.default", Full},
      {"aten.zeros.default", Constant<0>},
      {"aten.zeros_like.default", Constant<0>},
      {"aten.new_zeros.default", Constant<0>},
      {"aten.ones.default", Constant<1>},
      {"aten.ones_like.default", Constant<1>},
      {"aten.new_ones.default", Constant<1>},
      {"aten.empty.memory_format", Empty},
      {"aten.empty_like.default", Empty},
      {"aten.empty_strided.default", Empty},
      {"aten.new_empty.default", Empty},
      {"aten.new_empty_strided.default", Empty},
      {"aten.scalar_tensor.default", ScalarTensor},
      {"aten.fill.Scalar", Fill},
      {"aten.fill.Tensor", Fill},
      {"aten.arange.default", Arange},
      {"aten.arange.start", ArangeStart},
      {"aten.arange.start_step", ArangeStep},
      {"aten.tril.default", Tril},
      {"aten.triu.default", Triu},
  };
}

}  // namespace stepone::passes
