#include "compiler/ir/builder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "proto/str_cat.h"

namespace stepone::ir {
namespace {

std::string SizesText(const Dims& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(sizes[i]);
  return text + ']';
}

bool IsComparison(Op op) {
  return op == Op::kEq || op == Op::kNe || op == Op::kLt || op == Op::kLe || op == Op::kGt || op == Op::kGe;
}

// The sizes that both broadcast to; records a failure when there are none.
Dims BroadcastSizes(Builder& builder, const Dims& a, const Dims& b) {
  Dims result(std::max(a.size(), b.size()));
  for (size_t i = 0; i < result.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1) {
      builder.Fail("sizes", StrCat(SizesText(a), " and ", SizesText(b), " do not broadcast"));
    }
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  return result;
}

Scalar Identity(Op op, DType dtype) {
  if (op == Op::kProd || op == Op::kAll) return Convert(int64_t{1}, dtype);
  return Convert(int64_t{0}, dtype);
}

bool HasIdentity(Op op) { return op == Op::kSum || op == Op::kProd || op == Op::kAny || op == Op::kAll; }

}  // namespace

const TensorType& Expr::type() const { return builder->graph().type(id); }

Expr Builder::Add(Op op, std::vector<Expr> operands, TensorType result, Attrs attrs) {
  std::vector<ValueId> ids;
  ids.reserve(operands.size());
  for (const Expr& operand : operands) ids.push_back(operand.id);
  return Wrap(graph_.Add(op, std::move(ids), std::move(result), std::move(attrs), sources_));
}

Expr Builder::Full(const Scalar& value, DType dtype, Dims sizes) {
  return Add(Op::kFull, {}, Contiguous(dtype, std::move(sizes)), {{"value", ToAttr(Convert(value, dtype))}});
}

Expr Builder::Iota(DType dtype, Dims sizes, int64_t dim, const Scalar& start, const Scalar& step) {
  return Add(Op::kIota, {}, Contiguous(dtype, std::move(sizes)),
             {{"dim", dim}, {"start", ToAttr(Convert(start, dtype))}, {"step", ToAttr(Convert(step, dtype))}});
}

Expr Builder::Seed() {
  if (seed_ == kNoValue) seed_ = Add(Op::kSeed, {}, Contiguous(DType::kInt64, {1})).id;
  return Wrap(seed_);
}

Expr Builder::Random(Dims sizes) {
  return Add(Op::kRandom, {Seed()}, Contiguous(DType::kFloat32, std::move(sizes)), {{"stream", streams_++}});
}

void Builder::Fail(std::string_view rule, std::string message) {
  if (failed()) return;
  failed_rule_ = std::string(rule);
  failure_ = std::move(message);
}

// --- pointwise -------------------------------------------------------------------------------------------------------

Expr Cast(Expr x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return x.builder->Add(Op::kCast, {x}, Contiguous(dtype, x.sizes()));
}

Expr Unary(Op op, Expr x) {
  return x.builder->Add(op, {x}, Contiguous(op == Op::kIsNan ? DType::kBool : x.dtype(), x.sizes()));
}

Expr Binary(Op op, Expr a, Expr b) {
  Builder& builder = *a.builder;
  if (a.dtype() != b.dtype()) {
    builder.Fail("dtype", StrCat(Name(op), " of ", Name(a.dtype()), " and ", Name(b.dtype())));
    return a;
  }
  const Dims sizes = BroadcastSizes(builder, a.sizes(), b.sizes());
  if (builder.failed()) return a;
  const DType dtype = IsComparison(op) ? DType::kBool : a.dtype();
  return builder.Add(op, {BroadcastTo(a, sizes), BroadcastTo(b, sizes)}, Contiguous(dtype, sizes));
}

Expr Binary(Op op, Expr a, const Scalar& b) { return Binary(op, a, Like(a, b)); }

Expr Where(Expr condition, Expr yes, Expr no) {
  Builder& builder = *condition.builder;
  if (condition.dtype() != DType::kBool || yes.dtype() != no.dtype()) {
    builder.Fail("dtype",
                 StrCat("where of ", Name(condition.dtype()), ", ", Name(yes.dtype()), " and ", Name(no.dtype())));
    return yes;
  }
  const Dims sizes = BroadcastSizes(builder, condition.sizes(), BroadcastSizes(builder, yes.sizes(), no.sizes()));
  if (builder.failed()) return yes;
  return builder.Add(Op::kWhere, {BroadcastTo(condition, sizes), BroadcastTo(yes, sizes), BroadcastTo(no, sizes)},
                     Contiguous(yes.dtype(), sizes));
}

Expr Like(Expr x, const Scalar& value) { return x.builder->Full(value, x.dtype(), x.sizes()); }

Expr operator+(Expr a, Expr b) { return Binary(Op::kAdd, a, b); }
Expr operator-(Expr a, Expr b) { return Binary(Op::kSub, a, b); }
Expr operator*(Expr a, Expr b) { return Binary(Op::kMul, a, b); }
Expr operator/(Expr a, Expr b) { return Binary(Op::kDiv, a, b); }
Expr operator+(Expr a, double b) { return a + Like(a, b); }
Expr operator-(Expr a, double b) { return a - Like(a, b); }
Expr operator*(Expr a, double b) { return a * Like(a, b); }
Expr operator/(Expr a, double b) { return a / Like(a, b); }
Expr operator+(double a, Expr b) { return Like(b, a) + b; }
Expr operator-(double a, Expr b) { return Like(b, a) - b; }
Expr operator*(double a, Expr b) { return Like(b, a) * b; }
Expr operator/(double a, Expr b) { return Like(b, a) / b; }
Expr operator-(Expr a) { return Unary(Op::kNeg, a); }

// --- reductions ------------------------------------------------------------------------------------------------------

Dims AllDims(int64_t rank) {
  Dims dims(rank);
  for (int64_t i = 0; i < rank; ++i) dims[i] = i;
  return dims;
}

int64_t ReducedCount(Expr x, const Dims& dims) {
  int64_t count = 1;
  for (const int64_t dim : WrapDims(*x.builder, dims, x.rank(), false)) {
    if (x.rank() > 0) count *= x.size(dim);
  }
  return count;
}

Expr Reduce(Op op, Expr x, const Dims& dims, bool keepdim) {
  Builder& builder = *x.builder;
  const bool index = op == Op::kArgMax || op == Op::kArgMin;
  const DType dtype = index ? DType::kInt64 : x.dtype();
  const Dims reduced = WrapDims(builder, dims, x.rank(), false);
  if (builder.failed()) return x;
  if (reduced.empty() || x.rank() == 0) return index ? builder.Full(int64_t{0}, dtype, x.sizes()) : x;
  Dims sizes, kept;
  for (int64_t i = 0; i < x.rank(); ++i) {
    const bool gone = std::binary_search(reduced.begin(), reduced.end(), i);
    if (!gone) sizes.push_back(x.size(i));
    kept.push_back(gone ? 1 : x.size(i));
  }
  TensorType type = Contiguous(dtype, sizes);
  Expr result;
  if (x.type().NumElements() > 0) {
    result = builder.Add(op, {x}, std::move(type), {{"dims", reduced}});
  } else {
    if (type.NumElements() > 0 && !HasIdentity(op)) builder.Fail("sizes", StrCat(Name(op), " of no elements"));
    result = builder.Full(Identity(op, dtype), dtype, sizes);
  }
  return keepdim ? Reshape(result, kept) : result;
}

Expr Mean(Expr x, const Dims& dims, bool keepdim) {
  return Reduce(Op::kSum, x, dims, keepdim) / static_cast<double>(ReducedCount(x, dims));
}

// --- views and moves -------------------------------------------------------------------------------------------------

Expr Reshape(Expr x, Dims sizes) {
  if (x.sizes() == sizes) return x;
  TensorType type = Contiguous(x.dtype(), std::move(sizes));
  if (type.NumElements() != x.type().NumElements()) {
    x.builder->Fail("sizes", StrCat("cannot reshape ", SizesText(x.sizes()), " to ", SizesText(type.sizes)));
    return x;
  }
  return x.builder->Add(Op::kReshape, {x}, std::move(type));
}

Expr Permute(Expr x, const Dims& dims) {
  const Dims order = [&] {
    Dims wrapped;
    for (const int64_t dim : dims) wrapped.push_back(x.rank() == 0 ? dim : WrapDim(*x.builder, dim, x.rank()));
    return wrapped;
  }();
  Dims sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != AllDims(x.rank())) {
    x.builder->Fail("dims", StrCat("not a permutation of ", x.rank(), " dims: ", SizesText(dims)));
    return x;
  }
  if (order == sorted) return x;
  Dims sizes;
  for (const int64_t dim : order) sizes.push_back(x.size(dim));
  return x.builder->Add(Op::kPermute, {x}, Contiguous(x.dtype(), std::move(sizes)), {{"dims", order}});
}

Expr BroadcastTo(Expr x, const Dims& sizes) {
  if (x.sizes() == sizes) return x;
  Builder& builder = *x.builder;
  const int64_t extra = static_cast<int64_t>(sizes.size()) - x.rank();
  bool fits = extra >= 0;
  for (int64_t i = 0; fits && i < x.rank(); ++i) fits = x.size(i) == 1 || x.size(i) == sizes[i + extra];
  if (!fits) {
    builder.Fail("sizes", StrCat("cannot expand ", SizesText(x.sizes()), " to ", SizesText(sizes)));
    return x;
  }
  const NodeId producer = builder.graph().value(x.id).producer;
  if (producer != kNoNode && builder.graph().node(producer).op == Op::kFull) {
    return builder.Full(ToScalar(builder.graph().node(producer).attrs.at("value")), x.dtype(), sizes);
  }
  Dims padded(extra, 1);
  padded.insert(padded.end(), x.sizes().begin(), x.sizes().end());
  x = Reshape(x, padded);
  if (padded == sizes) return x;
  return builder.Add(Op::kExpand, {x}, Contiguous(x.dtype(), sizes));
}

Expr Unsqueeze(Expr x, int64_t dim) {
  dim = WrapDim(*x.builder, dim, x.rank() + 1);
  Dims sizes = x.sizes();
  sizes.insert(sizes.begin() + dim, 1);
  return Reshape(x, std::move(sizes));
}

Expr Squeeze(Expr x, int64_t dim) {
  dim = WrapDim(*x.builder, dim, x.rank());
  if (x.rank() == 0) return x;
  Dims sizes = x.sizes();
  sizes.erase(sizes.begin() + dim);
  return Reshape(x, std::move(sizes));
}

Expr Slice(Expr x, int64_t dim, int64_t start, int64_t length, int64_t step) {
  Builder& builder = *x.builder;
  if (dim < 0 || dim >= x.rank() || start < 0 || length < 0 || step < 1 ||
      (length > 0 && start + (length - 1) * step >= x.size(dim))) {
    builder.Fail("slice", StrCat("dim ", dim, " from ", start, " by ", step, ", ", length, " elements, of ",
                                 SizesText(x.sizes())));
    return x;
  }
  if (start == 0 && step == 1 && length == x.size(dim)) return x;
  Dims sizes = x.sizes();
  sizes[dim] = length;
  return builder.Add(Op::kSlice, {x}, Contiguous(x.dtype(), std::move(sizes)),
                     {{"dim", dim}, {"start", start}, {"step", step}});
}

Expr Flip(Expr x, const Dims& dims) {
  const Dims flipped = WrapDims(*x.builder, dims, x.rank(), false);
  if (flipped.empty() || x.rank() == 0) return x;
  return x.builder->Add(Op::kFlip, {x}, Contiguous(x.dtype(), x.sizes()), {{"dims", flipped}});
}

Expr Pad(Expr x, const Dims& low, const Dims& high, const Scalar& value) {
  Builder& builder = *x.builder;
  Dims sizes = x.sizes();
  bool changes = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] += low[i] + high[i];
    changes |= low[i] != 0 || high[i] != 0;
    if (sizes[i] < 0) {
      builder.Fail("sizes", StrCat("padding leaves a negative size in dim ", i));
      return x;
    }
  }
  if (!changes) return x;
  return builder.Add(Op::kPad, {x}, Contiguous(x.dtype(), std::move(sizes)),
                     {{"low", low}, {"high", high}, {"value", ToAttr(Convert(value, x.dtype()))}});
}

Expr Concat(const std::vector<Expr>& parts, int64_t dim) {
  Builder& builder = *parts[0].builder;
  std::vector<Expr> kept;
  Dims sizes = parts[0].sizes();
  sizes[dim] = 0;
  for (const Expr& part : parts) {
    Dims others = part.sizes();
    if (static_cast<int64_t>(others.size()) == parts[0].rank()) others[dim] = sizes[dim];
    if (others != sizes || part.dtype() != parts[0].dtype()) {
      builder.Fail("sizes", StrCat("cannot concatenate ", ToString(parts[0].type()), " and ", ToString(part.type()),
                                   " along dim ", dim));
      return parts[0];
    }
    sizes[dim] += part.size(dim);
    if (part.size(dim) > 0) kept.push_back(part);
  }
  if (kept.empty()) return parts[0];
  if (kept.size() == 1) return kept[0];
  return builder.Add(Op::kConcat, kept, Contiguous(kept[0].dtype(), std::move(sizes)), {{"dim", dim}});
}

Expr Copy(Expr x, Dims strides) {
  TensorType type = x.type();
  type.strides = std::move(strides);
  return x.builder->Add(Op::kCopy, {x}, std::move(type));
}

// --- indexed ---------------------------------------------------------------------------------------------------------

Expr Take(Expr table, Expr index, int64_t dim, bool wrap) {
  Dims sizes(table.sizes().begin(), table.sizes().begin() + dim);
  sizes.insert(sizes.end(), index.sizes().begin(), index.sizes().end());
  sizes.insert(sizes.end(), table.sizes().begin() + dim + 1, table.sizes().end());
  return table.builder->Add(Op::kTake, {table, index}, Contiguous(table.dtype(), std::move(sizes)),
                            {{"dim", dim}, {"wrap", wrap}});
}

Expr Gather(Expr x, Expr index, int64_t dim) {
  bool fits = x.rank() == index.rank() && dim < x.rank();
  for (int64_t i = 0; fits && i < x.rank(); ++i) fits = i == dim || index.size(i) <= x.size(i);
  if (!fits) {
    x.builder->Fail("sizes", StrCat("gather from ", SizesText(x.sizes()), " by ", SizesText(index.sizes())));
    return x;
  }
  return x.builder->Add(Op::kGather, {x, index}, Contiguous(x.dtype(), index.sizes()), {{"dim", dim}});
}

Expr TakeGrad(Expr upstream, Expr index, int64_t dim, int64_t size, int64_t skip) {
  const int64_t end = dim + index.rank();
  const Dims& from = upstream.sizes();
  if (end > upstream.rank() || !std::equal(index.sizes().begin(), index.sizes().end(), from.begin() + dim)) {
    upstream.builder->Fail(
        "sizes", StrCat("rows of ", SizesText(from), " added by ", SizesText(index.sizes()), " along dim ", dim));
    return upstream;
  }
  Dims sizes(from.begin(), from.begin() + dim);
  sizes.push_back(size);
  sizes.insert(sizes.end(), from.begin() + end, from.end());
  return upstream.builder->Add(Op::kTakeGrad, {upstream, index}, Contiguous(upstream.dtype(), std::move(sizes)),
                               {{"dim", dim}, {"skip", skip}});
}

Expr ScatterAdd(Expr x, Expr index, Expr source, int64_t dim) {
  bool fits = x.rank() == index.rank() && dim < x.rank() && source.sizes() == index.sizes();
  for (int64_t i = 0; fits && i < x.rank(); ++i) fits = i == dim || index.size(i) <= x.size(i);
  if (!fits) {
    x.builder->Fail("sizes", StrCat("scatter of ", SizesText(source.sizes()), " into ", SizesText(x.sizes()), " by ",
                                    SizesText(index.sizes())));
    return x;
  }
  return x.builder->Add(Op::kScatterAdd, {x, index, source}, Contiguous(x.dtype(), x.sizes()), {{"dim", dim}});
}

int64_t WrapDim(Builder& builder, int64_t dim, int64_t rank) {
  const int64_t bound = std::max<int64_t>(rank, 1);
  if (dim < -bound || dim >= bound) {
    builder.Fail("dim", StrCat("dim ", dim, " of a tensor with ", rank, " dims"));
    return 0;
  }
  return dim < 0 ? dim + bound : dim;
}

Dims WrapDims(Builder& builder, const Dims& dims, int64_t rank, bool empty_is_all) {
  if (dims.empty() && empty_is_all) return AllDims(rank);
  Dims wrapped;
  for (const int64_t dim : dims) wrapped.push_back(WrapDim(builder, dim, rank));
  std::sort(wrapped.begin(), wrapped.end());
  if (std::adjacent_find(wrapped.begin(), wrapped.end()) != wrapped.end()) {
    if (!builder.failed()) builder.Fail("dim", "a dim is named twice");
    wrapped.erase(std::unique(wrapped.begin(), wrapped.end()), wrapped.end());
  }
  return wrapped;
}

}  // namespace stepone::ir
