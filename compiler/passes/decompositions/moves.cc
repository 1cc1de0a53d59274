// Data movement: copies, joins, padding, and the gradients of views.
#include <algorithm>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::Dims;
using ir::DType;
using ir::Expr;
using ir::Op;

// The driver copies a result that is its operand.
Results Clone(CallSite& site) { return One(site.Tensor("self")); }

Results CopyInto(CallSite& site) {
  const Expr to = site.Tensor("self");
  return One(BroadcastTo(Cast(site.Tensor("src"), to.dtype()), to.sizes()));
}

// Tensors of sizes [0] do not count, whatever the others' rank.
Results Cat(CallSite& site) {
  std::vector<Expr> parts;
  int64_t rank = 0;
  for (const Expr& part : site.Tensors("tensors")) rank = std::max(rank, part.rank());
  const int64_t dim = WrapDim(site.builder(), site.Int("dim"), rank);
  for (const Expr& part : site.Tensors("tensors")) {
    if (part.rank() == rank && part.sizes() != Dims{0}) parts.push_back(Cast(part, site.ResultDType(part)));
  }
  if (parts.empty() || rank == 0) return Keep();
  return One(Concat(parts, dim));
}

Results Stack(CallSite& site) {
  std::vector<Expr> parts;
  const int64_t dim = WrapDim(site.builder(), site.Int("dim"), site.Tensors("tensors")[0].rank() + 1);
  for (const Expr& part : site.Tensors("tensors")) {
    parts.push_back(Unsqueeze(Cast(part, site.ResultDType(part)), dim));
  }
  return One(Concat(parts, dim));
}

// `pad` counts from the last dim: low, high, low, high ...
Results ConstantPad(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Dims pad = site.Ints("pad");
  Dims low(x.rank(), 0), high(x.rank(), 0);
  if (pad.size() % 2 != 0 || static_cast<int64_t>(pad.size()) > 2 * x.rank()) {
    site.builder().Fail("argument", "'pad' has more entries than the tensor has borders, or an odd number");
    return Keep();
  }
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    low[x.rank() - 1 - i] = pad[2 * i];
    high[x.rank() - 1 - i] = pad[2 * i + 1];
  }
  return One(Pad(x, low, high, site.Number("value")));
}

// Places x along `dim` of `size` zeros, from `start` by `step`. x may be longer than what fits.
Expr Spread(Expr x, int64_t dim, int64_t size, int64_t start, int64_t step) {
  Dims low(x.rank(), 0), high(x.rank(), 0);
  if (step > 1) {
    // Each element becomes a group of `step`: itself and zeros.
    const int64_t length = x.size(dim);
    const Expr apart = Unsqueeze(x, dim + 1);
    Dims none(x.rank() + 1, 0), tail(x.rank() + 1, 0);
    tail[dim + 1] = step - 1;
    Dims sizes = x.sizes();
    sizes[dim] = length * step;
    x = Reshape(Pad(apart, none, tail, int64_t{0}), sizes);
  }
  low[dim] = start;
  high[dim] = size - start - x.size(dim);
  return Pad(x, low, high, int64_t{0});
}

struct Range {
  int64_t dim = 0;
  int64_t start = 0;
  int64_t end = 0;
  int64_t step = 1;
};

// nullopt when the dims and the source's length do not fit: recorded as a failure.
std::optional<Range> ReadRange(CallSite& site, const Dims& sizes, const Dims& source) {
  Range range;
  ir::Builder& builder = site.builder();
  range.dim = WrapDim(builder, site.Int("dim"), static_cast<int64_t>(sizes.size()));
  range.step = site.Int("step");
  if (sizes.empty() || range.step < 1 || source.size() != sizes.size()) {
    builder.Fail("argument", "no such slice");
    return std::nullopt;
  }
  const int64_t size = sizes[range.dim];
  const auto clamp = [size](int64_t n) { return std::clamp<int64_t>(n < 0 ? n + size : n, 0, size); };
  range.start = clamp(site.OptionalInt("start").value_or(0));
  range.end = std::max(range.start, clamp(site.OptionalInt("end").value_or(size)));
  Dims expected = sizes;
  expected[range.dim] = range.end > range.start ? (range.end - range.start - 1) / range.step + 1 : 0;
  if (expected != source) {
    builder.Fail("sizes", "the slice has not the source's sizes");
    return std::nullopt;
  }
  return range;
}

Results SliceBackward(CallSite& site) {
  const Expr gradient = site.Tensor("grad_output");
  const Dims sizes = site.Ints("input_sizes");
  const auto range = ReadRange(site, sizes, gradient.sizes());
  if (!range) return Keep();
  return One(Spread(gradient, range->dim, sizes[range->dim], range->start, range->step));
}

// True where a position along the dim is in the range.
Expr InRange(ir::Builder& builder, const Range& range, const Dims& sizes) {
  const Expr position = builder.Iota(DType::kInt64, sizes, range.dim);
  Expr inside = Binary(Op::kAnd, Binary(Op::kGe, position, range.start), Binary(Op::kLt, position, range.end));
  if (range.step > 1) {
    const Expr offset = Binary(Op::kRemainder, Binary(Op::kSub, position, range.start), range.step);
    inside = Binary(Op::kAnd, inside, Binary(Op::kEq, offset, int64_t{0}));
  }
  return inside;
}

Results Scatter(CallSite& site, Expr x, Expr source, const Range& range) {
  const Expr spread = Spread(Cast(source, x.dtype()), range.dim, x.size(range.dim), range.start, range.step);
  const Expr inside = InRange(site.builder(), range, x.sizes());
  return One(Cast(Where(inside, Wide(spread), Wide(x)), x.dtype()));
}

Results SliceScatter(CallSite& site) {
  const Expr x = site.Tensor("self"), source = site.Tensor("src");
  const auto range = ReadRange(site, x.sizes(), source.sizes());
  if (!range) return Keep();
  return Scatter(site, x, source, *range);
}

std::optional<Range> ReadIndex(CallSite& site, const Dims& sizes) {
  Range range;
  range.dim = WrapDim(site.builder(), site.Int("dim"), static_cast<int64_t>(sizes.size()));
  const int64_t size = sizes.empty() ? 0 : sizes[range.dim];
  range.start = site.Int("index");
  if (range.start < -size || range.start >= size) {
    site.builder().Fail("argument", "an index outside of the dim");
    return std::nullopt;
  }
  if (range.start < 0) range.start += size;
  range.end = range.start + 1;
  return range;
}

Results SelectBackward(CallSite& site) {
  const Expr gradient = site.Tensor("grad_output");
  const Dims sizes = site.Ints("input_sizes");
  const auto range = ReadIndex(site, sizes);
  if (!range) return Keep();
  return One(Spread(Unsqueeze(gradient, range->dim), range->dim, sizes[range->dim], range->start, 1));
}

Results SelectScatter(CallSite& site) {
  const Expr x = site.Tensor("self");
  const auto range = ReadIndex(site, x.sizes());
  if (!range) return Keep();
  return Scatter(site, x, Unsqueeze(site.Tensor("src"), range->dim), *range);
}

Results Repeat(CallSite& site) {
  Expr x = site.Tensor("self");
  const Dims repeats = site.Ints("repeats");
  if (static_cast<int64_t>(repeats.size()) < x.rank()) {
    site.builder().Fail("argument", "fewer repeats than dims");
    return Keep();
  }
  const size_t missing = repeats.size() - x.rank();
  Dims apart, expanded, sizes;
  for (size_t i = 0; i < repeats.size(); ++i) {
    const int64_t size = i < missing ? 1 : x.size(static_cast<int64_t>(i - missing));
    apart.insert(apart.end(), {1, size});
    expanded.insert(expanded.end(), {repeats[i], size});
    sizes.push_back(repeats[i] * size);
  }
  return One(Reshape(BroadcastTo(Reshape(x, apart), expanded), sizes));
}

Results FlipRule(CallSite& site) { return One(Flip(site.Tensor("self"), site.Ints("dims"))); }

Results Roll(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Dims shifts = site.Ints("shifts"), dims = site.Ints("dims");
  if (x.rank() == 0) return One(x);
  const bool flat = dims.empty() && shifts.size() == 1;
  if (!flat && shifts.size() != dims.size()) return Keep();
  Expr rolled = flat ? Reshape(x, {x.type().NumElements()}) : x;
  for (size_t i = 0; i < shifts.size(); ++i) {
    const int64_t dim = flat ? 0 : WrapDim(site.builder(), dims[i], x.rank());
    const int64_t size = rolled.size(dim);
    if (size == 0) continue;
    const int64_t cut = ((-shifts[i] % size) + size) % size;  // what comes first
    if (cut == 0) continue;
    rolled = ir::Concat({Slice(rolled, dim, cut, size - cut), Slice(rolled, dim, 0, cut)}, dim);
  }
  return One(Reshape(rolled, x.sizes()));
}

}  // namespace

Rules MoveRules() {
  return {
      {"aten.clone.default", Clone},
      {"aten.contiguous.default", Clone},
      {"aten.lift_fresh_copy.default", Clone},
      {"aten.copy.default", CopyInto},
      {"aten.cat.default", Cat},
      {"aten.stack.default", Stack},
      {"aten.constant_pad_nd.default", ConstantPad},
      {"aten.slice_backward.default", SliceBackward},
      {"aten.slice_scatter.default", SliceScatter},
      {"aten.select_backward.default", SelectBackward},
      {"aten.select_scatter.default", SelectScatter},
      {"aten.repeat.default", Repeat},
      {"aten.flip.default", FlipRule},
      {"aten.roll.default", Roll},
  };
}

}  // namespace stepone::passes
