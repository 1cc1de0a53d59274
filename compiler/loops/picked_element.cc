#include "compiler/loops/picked_element.h"

#include <algorithm>
#include <map>
#include <vector>

#include "compiler/loops/space.h"

namespace stepone::loops {

using ir::DType;
using ir::Op;

namespace {

class Finder {
 public:
  Finder(ExprGraph& exprs, uint64_t columns, const ir::Dims& atoms) : exprs_(exprs), columns_(columns), atoms_(atoms) {}

  ExprId Find(ExprId value) {
    const Inst where = exprs_.at(value);
    if (where.code != Code::kScalar || where.op != Op::kWhere || !IsRowValue(where.args[1])) return kNoExpr;
    const Inst zero = exprs_.at(where.args[2]);
    if (zero.code != Code::kConstant || zero.number != 0 || zero.integer != 0) return kNoExpr;
    if (!Conditions(where.args[0])) return kNoExpr;
    int64_t count = 0;
    if (position_ == kNoExpr || exprs_.at(position_).code != Code::kIndex) return kNoExpr;
    const IndexExpr index = exprs_.at(position_).index;
    if (!CountsColumns(index, &count)) return kNoExpr;
    const DType type = exprs_.at(target_).type;
    const ExprId low = exprs_.Constant(type, index.constant), high = exprs_.Constant(type, index.constant + count);
    Require(exprs_.Scalar(Op::kGe, DType::kBool, {target_, low}));
    Require(exprs_.Scalar(Op::kLt, DType::kBool, {target_, high}));
    return exprs_.Scalar(Op::kWhere, where.type, {condition_, where.args[1], where.args[2]});
  }

 private:
  bool IsRowValue(ExprId id) {
    const auto [at, added] = row_values_.emplace(id, false);
    if (!added) return at->second;
    const Inst& inst = exprs_.at(id);
    const bool row = inst.code == Code::kReduce ||
                     ((DimMask(inst.index) & columns_) == 0 &&
                      std::all_of(inst.args.begin(), inst.args.end(), [&](ExprId arg) { return IsRowValue(arg); }));
    return row_values_[id] = row;
  }

  void Require(ExprId condition) {
    condition_ = condition_ == kNoExpr ? condition : exprs_.Scalar(Op::kAnd, DType::kBool, {condition_, condition});
  }

  // One comparison of a position with a row value, and conditions on the row.
  bool Conditions(ExprId root) {
    std::vector<ExprId> rest = {root};
    while (!rest.empty()) {
      const ExprId at = rest.back();
      const Inst inst = exprs_.at(at);
      rest.pop_back();
      if (IsRowValue(at)) {
        Require(at);
      } else if (inst.code == Code::kScalar && inst.op == Op::kAnd) {
        rest.insert(rest.end(), inst.args.begin(), inst.args.end());
      } else if (inst.code == Code::kScalar && inst.op == Op::kEq && position_ == kNoExpr) {
        const bool second = IsRowValue(inst.args[0]);
        position_ = inst.args[second ? 1 : 0];
        target_ = inst.args[second ? 0 : 1];
        if (!IsRowValue(target_)) return false;
      } else {
        return false;
      }
    }
    return true;
  }

  // Whether an index counts the columns of a row, each once; how many there are.
  bool CountsColumns(const IndexExpr& index, int64_t* count) const {
    if (columns_ == 0 || DimMask(index) != columns_) return false;
    std::vector<Term> terms = index.terms;
    std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.coefficient < b.coefficient; });
    *count = 1;
    for (const Term& term : terms) {
      if (term.divisor != 1 || term.modulus != 0 || term.coefficient != *count) return false;
      *count *= atoms_[term.dim];
    }
    return true;
  }

  ExprGraph& exprs_;
  const uint64_t columns_;
  const ir::Dims& atoms_;
  std::map<ExprId, bool> row_values_;
  ExprId condition_ = kNoExpr, position_ = kNoExpr, target_ = kNoExpr;
};

}  // namespace

ExprId PickedElement(ExprGraph& exprs, ExprId value, uint64_t columns, const ir::Dims& atoms) {
  return Finder(exprs, columns, atoms).Find(value);
}

}  // namespace stepone::loops
