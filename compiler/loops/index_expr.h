// Algebra of index expressions over dims of known size: what composes views and simplifies divisions.
//
// Every function takes the sizes of the dims that the expressions speak of. Values are exact; nothing here allocates
// more than a few terms. Pure functions, safe from any thread.
#ifndef STEPONE_COMPILER_LOOPS_INDEX_EXPR_H_
#define STEPONE_COMPILER_LOOPS_INDEX_EXPR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/types.h"
#include "compiler/loops/kernel.h"

namespace stepone::loops {

IndexExpr Constant(int64_t value);
IndexExpr DimIndex(int32_t dim, int64_t coefficient = 1);
IndexExpr Add(const IndexExpr& a, const IndexExpr& b);
IndexExpr AddConstant(IndexExpr a, int64_t value);
IndexExpr Scale(IndexExpr a, int64_t factor);

// Smallest and largest value. REQUIRES: all sizes >= 1.
struct Range {
  int64_t low = 0;
  int64_t high = 0;
};
Range RangeOf(const Term& term, const ir::Dims& sizes);
Range RangeOf(const IndexExpr& expr, const ir::Dims& sizes);

// Value at a point.
int64_t Evaluate(const IndexExpr& expr, const ir::Dims& point);

// A dim that must become two, [size / inner, inner], before a division by a constant can be written down.
struct Split {
  int32_t dim = -1;
  int64_t inner = 0;
};

// a / divisor and a % divisor, for a >= 0. Empty with `split` set: possible after that split. Empty with split->dim <
// 0: cannot be written as an IndexExpr.
struct DivMod {
  IndexExpr quotient;
  IndexExpr remainder;
};
std::optional<DivMod> Divide(const IndexExpr& a, int64_t divisor, const ir::Dims& sizes, Split* split);

// Row-major position of `coordinates` in `shape`, and back (Divide's rules for what is not possible).
IndexExpr Linearize(const std::vector<IndexExpr>& coordinates, const ir::Dims& shape);
std::optional<std::vector<IndexExpr>> Delinearize(const IndexExpr& position, const ir::Dims& shape,
                                                  const ir::Dims& sizes, Split* split);

// The same for a reshape of `from` to `to`, dims that stay as they are kept apart: what is out of range in one of them
// (behind a guard) does not carry over into others.
std::optional<std::vector<IndexExpr>> ReshapeCoords(const std::vector<IndexExpr>& coordinates, const ir::Dims& from,
                                                    const ir::Dims& to, const ir::Dims& sizes, Split* split);

// Rewrites an expression for dims in which `split.dim` was replaced by two: the outer part keeps its number, the inner
// one is split.dim + 1, later dims move up by one.
IndexExpr ApplySplit(const IndexExpr& expr, const Split& split);
void ApplySplit(const Split& split, ir::Dims* sizes);

// Renumbers dims: dim d becomes to[d]. Terms of dims with to[d] < 0 are dropped (for dims of size 1).
IndexExpr Renumber(const IndexExpr& expr, const std::vector<int32_t>& to);

// Coefficient of the plain term of `dim`; 0 when it has none. `only_plain` becomes false if dim has a term with / or %.
int64_t Coefficient(const IndexExpr& expr, int32_t dim, bool* only_plain = nullptr);
bool DependsOn(const IndexExpr& expr, int32_t dim);

// "128*d0+d1+4", "(d0/3)%2".
std::string ToString(const IndexExpr& expr);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_INDEX_EXPR_H_
