// Reads and additions at positions that tensors name.
#include <algorithm>

#include "compiler/passes/decompositions/rule.h"

namespace stepone::passes {
namespace {

using ir::Dims;
using ir::DType;
using ir::Expr;
using ir::Op;

bool IsIndex(Expr x) { return x.dtype() == DType::kInt64 || x.dtype() == DType::kInt32; }

// In a dtype that can be added up: 16-bit floats in float32. nullopt for bool.
std::optional<Expr> Addable(Expr x) {
  if (x.dtype() == DType::kBool) return std::nullopt;
  return Wide(x);
}

Results Embedding(CallSite& site) {
  const Expr weight = site.Tensor("weight"), index = site.Tensor("indices");
  if (weight.rank() != 2 || !IsIndex(index)) return Keep();
  return One(Take(weight, index, 0, false));
}

Results EmbeddingBackward(CallSite& site) {
  const Expr gradient = site.Tensor("grad_output"), index = site.Tensor("indices");
  const auto upstream = Addable(gradient);
  if (!upstream || !IsIndex(index) || site.Bool("scale_grad_by_freq")) return Keep();
  const int64_t padding = site.Int("padding_idx");
  return One(
      Cast(TakeGrad(*upstream, index, 0, site.Int("num_weights"), padding < 0 ? -1 : padding), gradient.dtype()));
}

Results IndexSelect(CallSite& site) {
  const Expr x = site.Tensor("self"), index = AtLeast1d(site.Tensor("index"));
  if (x.rank() == 0 || index.rank() != 1 || !IsIndex(index)) return Keep();
  return One(Take(x, index, WrapDim(site.builder(), site.Int("dim"), x.rank()), false));
}

Results GatherRule(CallSite& site) {
  const Expr x = site.Tensor("self"), index = site.Tensor("index");
  if (!IsIndex(index)) return Keep();
  const int64_t dim = WrapDim(site.builder(), site.Int("dim"), x.rank());
  return One(Reshape(Gather(AtLeast1d(x), AtLeast1d(index), dim), index.sizes()));
}

// The source may be larger than the index: its first rows count.
Results ScatterAddRule(CallSite& site) {
  const Expr x = site.Tensor("self");
  const Expr index = AtLeast1d(site.Tensor("index"));
  Expr source = AtLeast1d(site.Tensor("src"));
  const auto wide = Addable(AtLeast1d(x));
  if (!wide || !IsIndex(index) || source.dtype() != x.dtype() || source.rank() != index.rank()) return Keep();
  for (int64_t i = 0; i < source.rank(); ++i) source = Slice(source, i, 0, index.size(i));
  const int64_t dim = WrapDim(site.builder(), site.Int("dim"), x.rank());
  return One(Reshape(Cast(ScatterAdd(*wide, index, Wide(source), dim), x.dtype()), x.sizes()));
}

Results IndexAdd(CallSite& site) {
  const Expr x = site.Tensor("self"), index = AtLeast1d(site.Tensor("index"));
  const Expr source = site.Tensor("source");
  const auto wide = Addable(x);
  if (!wide || x.rank() == 0 || source.rank() != x.rank() || source.dtype() != x.dtype() || !IsIndex(index)) {
    return Keep();
  }
  const int64_t dim = WrapDim(site.builder(), site.Int("dim"), x.rank());
  Expr rows = Wide(source);
  if (site.Float("alpha") != 1) rows = Binary(Op::kMul, rows, site.Number("alpha"));
  return One(Cast(*wide + TakeGrad(rows, index, dim, x.size(dim)), x.dtype()));
}

// --- x[..., i, j, ...]
// ------------------------------------------------------------------------------------------------

// Index tensors of neighbouring dims, as one index into those dims taken as one.
struct Position {
  int64_t dim = 0;    // the first of them
  int64_t count = 0;  // how many
  Expr index;         // not negative, or out of range on purpose
  Dims flat;          // x's sizes with those dims as one
};

// Counts from the end where negative.
Expr FromFront(Expr index, int64_t size) {
  return Where(Binary(Op::kLt, index, int64_t{0}), Binary(Op::kAdd, index, size), index);
}

// i * size + j, or -1 where some index is out of its own range: a kernel then reports it.
Expr Combined(const std::vector<Expr>& indices, const Dims& sizes) {
  std::optional<Expr> inside;
  std::optional<Expr> position;
  for (size_t i = 0; i < indices.size(); ++i) {
    const Expr index = FromFront(indices[i], sizes[i]);
    const Expr good = Binary(Op::kAnd, Binary(Op::kGe, index, int64_t{0}), Binary(Op::kLt, index, sizes[i]));
    inside = inside ? Binary(Op::kAnd, *inside, good) : good;
    position = position ? Binary(Op::kMul, *position, sizes[i]) + index : index;
  }
  return Where(*inside, *position, Like(*position, int64_t{-1}));
}

std::optional<Position> ReadPosition(CallSite& site, Expr x) {
  const auto entries = site.OptionalTensors("indices");
  Position position;
  std::vector<Expr> indices;
  Dims sizes;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i]) continue;
    const bool neighbour = indices.empty() || static_cast<int64_t>(i) == position.dim + position.count;
    if (!neighbour || !IsIndex(*entries[i]) || static_cast<int64_t>(i) >= x.rank()) return std::nullopt;
    if (indices.empty()) position.dim = static_cast<int64_t>(i);
    ++position.count;
    indices.push_back(Cast(*entries[i], DType::kInt64));
    sizes.push_back(x.size(static_cast<int64_t>(i)));
  }
  if (indices.empty()) return std::nullopt;
  position.index = indices.size() == 1 ? indices[0] : Combined(indices, sizes);
  int64_t together = 1;
  for (const int64_t size : sizes) together *= size;
  position.flat = x.sizes();
  position.flat.erase(position.flat.begin() + position.dim, position.flat.begin() + position.dim + position.count);
  position.flat.insert(position.flat.begin() + position.dim, together);
  return position;
}

Results Index(CallSite& site) {
  const Expr x = site.Tensor("self");
  const auto position = ReadPosition(site, x);
  if (!position) return Keep();
  const bool wrap = position->count == 1;
  return One(Take(Reshape(x, position->flat), position->index, position->dim, wrap));
}

// Adds values; repeats add up. Without `accumulate` one of the repeats would have to win: a call.
Results IndexPut(CallSite& site) {
  const Expr x = site.Tensor("self"), values = site.Tensor("values");
  const auto wide = Addable(x);
  if (!site.Bool("accumulate") || !wide || values.dtype() != x.dtype()) return Keep();
  const auto position = ReadPosition(site, x);
  if (!position) return Keep();
  const Expr index = position->count == 1 ? FromFront(position->index, x.size(position->dim)) : position->index;
  Dims rows(position->flat.begin(), position->flat.begin() + position->dim);
  rows.insert(rows.end(), index.sizes().begin(), index.sizes().end());
  rows.insert(rows.end(), position->flat.begin() + position->dim + 1, position->flat.end());
  const Expr upstream = BroadcastTo(Wide(values), rows);
  const Expr added = TakeGrad(upstream, index, position->dim, position->flat[position->dim]);
  return One(Cast(*wide + Reshape(added, x.sizes()), x.dtype()));
}

}  // namespace

Rules IndexingRules() {
  return {
      {"aten.embedding.default", Embedding},
      {"aten.embedding_dense_backward.default", EmbeddingBackward},
      {"aten.index_select.default", IndexSelect},
      {"aten.gather.default", GatherRule},
      {"aten.scatter_add.default", ScatterAddRule},
      {"aten.index_add.default", IndexAdd},
      {"aten.index.Tensor", Index},
      {"aten._unsafe_index.Tensor", Index},
      {"aten.index_put.default", IndexPut},
      {"aten._unsafe_index_put.default", IndexPut},
  };
}

}  // namespace stepone::passes
