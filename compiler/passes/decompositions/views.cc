// Views: maps of positions.
#include <algorithm>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::Dims;
using ir::Expr;

Results Same(CallSite& site) { return One(site.Tensor("self")); }

// One entry of `size` may be -1: what is left.
Results View(CallSite& site) {
  const Expr x = site.Tensor("self");
  Dims size = site.Ints("size");
  const auto open = std::find(size.begin(), size.end(), -1);
  if (open != size.end()) {
    *open = 1;
    const int64_t known = ir::Contiguous(x.dtype(), size).NumElements();
    *open = known == 0 ? 0 : x.type().NumElements() / known;
  }
  return One(Reshape(x, size));
}

Results Transpose(CallSite& site, int64_t a, int64_t b) {
  const Expr x = site.Tensor("self");
  a = WrapDim(site.builder(), a, x.rank());
  b = WrapDim(site.builder(), b, x.rank());
  Dims dims = ir::AllDims(x.rank());
  if (x.rank() > 0) std::swap(dims[a], dims[b]);
  return One(Permute(x, dims));
}

Results TransposeInt(CallSite& site) { return Transpose(site, site.Int("dim0"), site.Int("dim1")); }

Results T(CallSite& site) { return site.Tensor("self").rank() < 2 ? One(site.Tensor("self")) : Transpose(site, 0, 1); }

Results PermuteRule(CallSite& site) { return One(Permute(site.Tensor("self"), site.Ints("dims"))); }

Results Expand(CallSite& site) {
  const Expr x = site.Tensor("self");
  Dims size = site.Ints("size");
  // -1 keeps a dim.
  for (size_t i = 0; i < size.size(); ++i) {
    const int64_t from = static_cast<int64_t>(i) - (static_cast<int64_t>(size.size()) - x.rank());
    if (size[i] == -1 && from >= 0 && from < x.rank()) size[i] = x.size(from);
  }
  return One(BroadcastTo(x, size));
}

Results ExpandAs(CallSite& site) { return One(BroadcastTo(site.Tensor("self"), site.Tensor("other").sizes())); }

Results UnsqueezeRule(CallSite& site) { return One(Unsqueeze(site.Tensor("self"), site.Int("dim"))); }

Results SqueezeDims(CallSite& site, const Dims& dims) {
  const Expr x = site.Tensor("self");
  const Dims gone = WrapDims(site.builder(), dims, x.rank(), false);
  Dims sizes;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (x.size(i) != 1 || !std::binary_search(gone.begin(), gone.end(), i)) sizes.push_back(x.size(i));
  }
  return One(Reshape(x, sizes));
}

Results SqueezeAll(CallSite& site) { return SqueezeDims(site, ir::AllDims(site.Tensor("self").rank())); }
Results SqueezeDim(CallSite& site) { return SqueezeDims(site, site.Ints("dim")); }

// A position that may be negative or too large, as Python's slices take it.
int64_t ClampPosition(int64_t position, int64_t size) {
  if (position < 0) position += size;
  return std::clamp<int64_t>(position, 0, size);
}

Results SliceRule(CallSite& site) {
  const Expr x = site.Tensor("self");
  const int64_t dim = WrapDim(site.builder(), site.Int("dim"), x.rank());
  const int64_t step = site.Int("step");
  if (x.rank() == 0 || step < 1) {
    site.builder().Fail("argument", "slice of a tensor without dims, or a step below 1");
    return Keep();
  }
  const int64_t start = ClampPosition(site.OptionalInt("start").value_or(0), x.size(dim));
  const int64_t end = ClampPosition(site.OptionalInt("end").value_or(x.size(dim)), x.size(dim));
  return One(Slice(x, dim, start, end > start ? (end - start - 1) / step + 1 : 0, step));
}

// Position `index` of `dim`, which goes.
Expr SelectOf(Expr x, int64_t dim, int64_t index) {
  const int64_t size = x.rank() == 0 ? 0 : x.size(dim);
  if (index < -size || index >= size) {
    x.builder->Fail("argument", "select outside of the dim");
    return x;
  }
  return Squeeze(Slice(x, dim, index < 0 ? index + size : index, 1), dim);
}

Results Select(CallSite& site) {
  const Expr x = site.Tensor("self");
  return One(SelectOf(x, WrapDim(site.builder(), site.Int("dim"), x.rank()), site.Int("index")));
}

Results Unbind(CallSite& site) {
  const Expr x = site.Tensor("self");
  const int64_t dim = WrapDim(site.builder(), site.Int("dim"), x.rank());
  if (x.rank() == 0 || x.size(dim) != site.num_results()) {
    site.builder().Fail("results", "unbind has a result for each position of the dim");
    return Keep();
  }
  std::vector<Expr> results;
  for (int64_t i = 0; i < x.size(dim); ++i) results.push_back(SelectOf(x, dim, i));
  return results;
}

Results Split(CallSite& site, int64_t dim, const Dims& lengths) {
  const Expr x = site.Tensor("self");
  std::vector<Expr> results;
  int64_t start = 0;
  for (const int64_t length : lengths) {
    results.push_back(Slice(x, dim, start, length));
    start += length;
  }
  if (start != x.size(dim)) site.builder().Fail("argument", "the parts do not make up the dim");
  return results;
}

Results SplitEqual(CallSite& site) {
  const Expr x = site.Tensor("self");
  const int64_t dim = WrapDim(site.builder(), site.Int("dim"), x.rank());
  const int64_t length = site.Int("split_size");
  if (length <= 0 || x.rank() == 0) return Keep();
  if (x.size(dim) / length > site.num_results()) {
    site.builder().Fail("results", "split has more parts than results");
    return Keep();
  }
  Dims lengths;
  for (int64_t start = 0; start < x.size(dim); start += length) {
    lengths.push_back(std::min(length, x.size(dim) - start));
  }
  return Split(site, dim, lengths);
}

Results SplitSizes(CallSite& site) {
  const Expr x = site.Tensor("self");
  if (x.rank() == 0) return Keep();
  const Dims lengths = site.IsNone("split_sizes") ? site.Ints("split_size") : site.Ints("split_sizes");
  return Split(site, WrapDim(site.builder(), site.Int("dim"), x.rank()), lengths);
}

// The plane's diagonal is every (width + 1)-th of its elements in a row.
Results Diagonal(CallSite& site) {
  Expr x = site.Tensor("self");
  if (x.rank() < 2) return Keep();
  const int64_t a = WrapDim(site.builder(), site.Int("dim1"), x.rank());
  const int64_t b = WrapDim(site.builder(), site.Int("dim2"), x.rank());
  const int64_t offset = site.Int("offset");
  if (a == b) return Keep();
  Dims order;
  for (int64_t i = 0; i < x.rank(); ++i) {
    if (i != a && i != b) order.push_back(i);
  }
  order.push_back(a);
  order.push_back(b);
  x = Permute(x, order);
  const int64_t last = x.rank() - 2;
  const int64_t height = x.size(last), width = x.size(last + 1);
  const int64_t length =
      std::max<int64_t>(0, offset >= 0 ? std::min(height, width - offset) : std::min(height + offset, width));
  const int64_t start = offset >= 0 ? offset : -offset * width;
  Dims flat(x.sizes().begin(), x.sizes().begin() + last);
  flat.push_back(height * width);
  return One(Slice(Reshape(x, flat), last, length == 0 ? 0 : start, length, width + 1));
}

}  // namespace

Rules ViewRules() {
  return {
      {"aten.alias.default", Same},
      {"aten.detach.default", Same},
      {"aten.view.default", View},
      {"aten._unsafe_view.default", View},
      {"aten._reshape_alias.default", View},
      {"aten.t.default", T},
      {"aten.transpose.int", TransposeInt},
      {"aten.permute.default", PermuteRule},
      {"aten.expand.default", Expand},
      {"aten.expand_as.default", ExpandAs},
      {"aten.unsqueeze.default", UnsqueezeRule},
      {"aten.squeeze.default", SqueezeAll},
      {"aten.squeeze.dim", SqueezeDim},
      {"aten.squeeze.dims", SqueezeDim},
      {"aten.slice.Tensor", SliceRule},
      {"aten.select.int", Select},
      {"aten.unbind.int", Unbind},
      {"aten.split.Tensor", SplitEqual},
      {"aten.split.sizes", SplitSizes},
      {"aten.split_with_sizes.default", SplitSizes},
      {"aten.diagonal.default", Diagonal},
  };
}

}  // namespace stepone::passes
