// Iteration spaces of groups: how the points of two groups' loop nests correspond, so that they can be one nest.
#ifndef STEPONE_COMPILER_LOOPS_SPACE_H_
#define STEPONE_COMPILER_LOOPS_SPACE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/loops/index_expr.h"

namespace stepone::loops {

// `expr` with dim d replaced by to[d], an expression over dims of `sizes`. Empty when a division in it does not work
// out.
std::optional<IndexExpr> Substitute(const IndexExpr& expr, const std::vector<IndexExpr>& to, const ir::Dims& sizes);

// Dims that an expression depends on, one bit each.
uint64_t DimMask(const IndexExpr& expr);
uint64_t DimMask(const std::vector<IndexExpr>& exprs);

// Makes two lists of atoms one. Call Require for everything that must be equal, then Suggest for what would be good if
// equal, then Finish.
class Unifier {
 public:
  Unifier(const ir::Dims& a, const ir::Dims& b);

  // Positions in one and the same value, seen from both sides, that must be equal. False: they cannot be made equal.
  bool Require(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b);
  // Matches atoms so that these become equal, if that is possible beside what was matched before.
  void Suggest(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b);
  // Matches the rest: when both sides have atoms left these must have equal sizes in order. False: they have not.
  bool Finish();

  // After Finish: the common atoms, and each side's old atoms over them.
  const ir::Dims& atoms() const { return merged_; }
  const std::vector<IndexExpr>& from_a() const { return from_a_; }
  const std::vector<IndexExpr>& from_b() const { return from_b_; }

 private:
  struct Side {
    ir::Dims atoms;
    std::vector<IndexExpr> of;   // original atoms over the present ones
    std::vector<int32_t> match;  // partner on the other side, -1: none
  };

  bool MatchAll(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b);
  bool MatchExpr(IndexExpr a, IndexExpr b, bool* again);
  bool MatchAtoms(int32_t a, int32_t b, bool* again);
  void SplitAtom(Side& side, Side& other, int32_t atom, int64_t inner);

  Side a_, b_;
  ir::Dims merged_;
  std::vector<IndexExpr> from_a_, from_b_;
};

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_SPACE_H_
