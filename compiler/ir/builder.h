// Expressions over primitives: result types are inferred and operands broadcast. What decompositions are written in.
//
//     Expr shifted = x - Max(x, {dim}, true);
//     return shifted - Log(Sum(Exp(shifted), {dim}, true));
//
// Operands of an arithmetic op must have one dtype, and not a 16-bit float one (graph.h): cast first. A wrong operand
// (sizes that do not fit, a dim out of range) is recorded in the builder, and the result is then some value of no
// meaning, so that a rule can be written without a check after every step: the caller asks failed() at the end.
#ifndef STEPONE_COMPILER_IR_BUILDER_H_
#define STEPONE_COMPILER_IR_BUILDER_H_

#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/scalar.h"

namespace stepone::ir {

class Builder;

// A value and where it is. Cheap to copy; valid as long as the builder.
struct Expr {
  Builder* builder = nullptr;
  ValueId id = kNoValue;

  const TensorType& type() const;
  DType dtype() const { return type().dtype; }
  const Dims& sizes() const { return type().sizes; }
  int64_t rank() const { return type().rank(); }
  int64_t size(int64_t dim) const { return type().sizes[dim]; }
};

// Appends nodes to a graph. Not thread-safe. The graph must outlive it.
class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) {}

  Graph& graph() { return graph_; }
  Expr Wrap(ValueId id) { return Expr{this, id}; }
  // Every node that is added from now on carries these.
  void set_sources(std::vector<std::string> sources) { sources_ = std::move(sources); }

  Expr Full(const Scalar& value, DType dtype, Dims sizes);
  Expr Iota(DType dtype, Dims sizes, int64_t dim, const Scalar& start = int64_t{0}, const Scalar& step = int64_t{1});
  // The graph's draw of a seed: one node, made when it is first asked for.
  Expr Seed();
  // A new stream of random numbers: the first is 0.
  Expr Random(Dims sizes);

  Expr Add(Op op, std::vector<Expr> operands, TensorType result, Attrs attrs = {});

  // The first failure wins. `rule` is a short word ("sizes", "dtype", "dim"), the message says what is wrong.
  void Fail(std::string_view rule, std::string message);
  bool failed() const { return !failed_rule_.empty(); }
  const std::string& failed_rule() const { return failed_rule_; }
  const std::string& failure() const { return failure_; }

 private:
  Graph& graph_;
  std::vector<std::string> sources_;
  ValueId seed_ = kNoValue;
  int64_t streams_ = 0;
  std::string failed_rule_;
  std::string failure_;
};

// --- pointwise -------------------------------------------------------------------------------------------------------
Expr Cast(Expr x, DType dtype);  // x itself when it has that dtype
Expr Unary(Op op, Expr x);
Expr Binary(Op op, Expr a, Expr b);
Expr Binary(Op op, Expr a, const Scalar& b);  // b in a's dtype
Expr Where(Expr condition, Expr yes, Expr no);
Expr Like(Expr x, const Scalar& value);  // a constant of x's dtype and sizes

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator+(Expr a, double b);
Expr operator-(Expr a, double b);
Expr operator*(Expr a, double b);
Expr operator/(Expr a, double b);
Expr operator+(double a, Expr b);
Expr operator-(double a, Expr b);
Expr operator*(double a, Expr b);
Expr operator/(double a, Expr b);
Expr operator-(Expr a);

// --- reductions: `dims` may be negative and empty (then x comes back) ------------------------------------------------
// The identity of `op` when nothing is reduced over a dimension of size 0; failure for ops without one.
Expr Reduce(Op op, Expr x, const Dims& dims, bool keepdim);
Expr Mean(Expr x, const Dims& dims, bool keepdim);  // float dtypes; NaN of nothing
Dims AllDims(int64_t rank);
// Number of elements that one result of a reduction over `dims` is made of.
int64_t ReducedCount(Expr x, const Dims& dims);

// --- views and moves -------------------------------------------------------------------------------------------------
Expr Reshape(Expr x, Dims sizes);
Expr Permute(Expr x, const Dims& dims);
Expr BroadcastTo(Expr x, const Dims& sizes);  // by torch's rules: missing leading dims, then size-1 dims
Expr Unsqueeze(Expr x, int64_t dim);
Expr Squeeze(Expr x, int64_t dim);  // REQUIRES: that dim has size 1
Expr Slice(Expr x, int64_t dim, int64_t start, int64_t length, int64_t step = 1);
Expr Flip(Expr x, const Dims& dims);
Expr Pad(Expr x, const Dims& low, const Dims& high, const Scalar& value);
Expr Concat(const std::vector<Expr>& parts, int64_t dim);  // REQUIRES: not empty
Expr Copy(Expr x, Dims strides);

// --- indexed ---------------------------------------------------------------------------------------------------------
Expr Take(Expr table, Expr index, int64_t dim, bool wrap);
Expr Gather(Expr x, Expr index, int64_t dim);
// Zeros of `size` along `dim`, with upstream's rows added where index says; rows whose index is `skip` are left out.
Expr TakeGrad(Expr upstream, Expr index, int64_t dim, int64_t size, int64_t skip = -1);
Expr ScatterAdd(Expr x, Expr index, Expr source, int64_t dim);

// `dim` counted from the front; a tensor without dimensions counts as having one. A failure is recorded in `builder`.
int64_t WrapDim(Builder& builder, int64_t dim, int64_t rank);
// Sorted, each once; all of them when `dims` is empty and `empty_is_all`.
Dims WrapDims(Builder& builder, const Dims& dims, int64_t rank, bool empty_is_all);

}  // namespace stepone::ir

#endif  // STEPONE_COMPILER_IR_BUILDER_H_
