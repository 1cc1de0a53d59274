#include "compiler/loops/space.h"

#include <algorithm>

namespace stepone::loops {
namespace {

bool Plain(const Term& term) { return term.divisor == 1 && term.modulus == 0; }

bool AllPlain(const IndexExpr& expr) {
  return std::all_of(expr.terms.begin(), expr.terms.end(), [](const Term& term) { return Plain(term); });
}

}  // namespace

std::optional<IndexExpr> Substitute(const IndexExpr& expr, const std::vector<IndexExpr>& to, const ir::Dims& sizes) {
  IndexExpr result = Constant(expr.constant);
  for (const Term& term : expr.terms) {
    IndexExpr part = to[term.dim];
    Split split;
    if (term.divisor > 1) {
      std::optional<DivMod> divided = Divide(part, term.divisor, sizes, &split);
      if (!divided) return std::nullopt;
      part = std::move(divided->quotient);
    }
    if (term.modulus > 0) {
      std::optional<DivMod> divided = Divide(part, term.modulus, sizes, &split);
      if (!divided) return std::nullopt;
      part = std::move(divided->remainder);
    }
    result = Add(result, Scale(std::move(part), term.coefficient));
  }
  return result;
}

uint64_t DimMask(const IndexExpr& expr) {
  uint64_t mask = 0;
  for (const Term& term : expr.terms) mask |= uint64_t{1} << term.dim;
  return mask;
}

uint64_t DimMask(const std::vector<IndexExpr>& exprs) {
  uint64_t mask = 0;
  for (const IndexExpr& expr : exprs) mask |= DimMask(expr);
  return mask;
}

Unifier::Unifier(const ir::Dims& a, const ir::Dims& b) {
  a_.atoms = a;
  b_.atoms = b;
  for (Side* side : {&a_, &b_}) {
    for (size_t i = 0; i < side->atoms.size(); ++i) side->of.push_back(DimIndex(static_cast<int32_t>(i)));
    side->match.assign(side->atoms.size(), -1);
  }
}

// Cuts an atom and, if it has a partner, the partner as well.
void Unifier::SplitAtom(Side& side, Side& other, int32_t atom, int64_t inner) {
  const int32_t partner = side.match[atom];
  const auto cut = [inner](Side& at, Side& opposite, int32_t dim) {
    const Split split{dim, inner};
    for (IndexExpr& expr : at.of) expr = ApplySplit(expr, split);
    ApplySplit(split, &at.atoms);
    at.match.insert(at.match.begin() + dim + 1, -1);
    for (int32_t& match : opposite.match) match += match > dim ? 1 : 0;
  };
  cut(side, other, atom);
  if (partner < 0) return;
  cut(other, side, partner);
  side.match[atom] = partner;
  side.match[atom + 1] = partner + 1;
  other.match[partner] = atom;
  other.match[partner + 1] = atom + 1;
}

bool Unifier::MatchAtoms(int32_t a, int32_t b, bool* again) {
  const int64_t size_a = a_.atoms[a], size_b = b_.atoms[b];
  if (size_a == size_b) {
    if (a_.match[a] == b) return true;
    if (a_.match[a] >= 0 || b_.match[b] >= 0) return false;
    a_.match[a] = b;
    b_.match[b] = a;
    return true;
  }
  *again = true;
  if (size_a > size_b && size_a % size_b == 0) {
    SplitAtom(a_, b_, a, size_b);
    return true;
  }
  if (size_b > size_a && size_b % size_a == 0) {
    SplitAtom(b_, a_, b, size_a);
    return true;
  }
  return false;
}

bool Unifier::MatchExpr(IndexExpr a, IndexExpr b, bool* again) {
  if (a.constant != b.constant || !AllPlain(a) || !AllPlain(b)) return false;
  const auto by_coefficient = [](const Term& x, const Term& y) { return x.coefficient < y.coefficient; };
  std::sort(a.terms.begin(), a.terms.end(), by_coefficient);
  std::sort(b.terms.begin(), b.terms.end(), by_coefficient);
  for (size_t i = 0; i < std::max(a.terms.size(), b.terms.size()); ++i) {
    if (i >= a.terms.size() || i >= b.terms.size() || a.terms[i].coefficient != b.terms[i].coefficient) return false;
    if (!MatchAtoms(a.terms[i].dim, b.terms[i].dim, again)) return false;
    if (*again) return true;
  }
  return true;
}

bool Unifier::MatchAll(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    for (bool again = true; again;) {
      again = false;
      const std::optional<IndexExpr> x = Substitute(a[i], a_.of, a_.atoms);
      const std::optional<IndexExpr> y = Substitute(b[i], b_.of, b_.atoms);
      if (!x || !y || !MatchExpr(*x, *y, &again)) return false;
    }
  }
  return true;
}

bool Unifier::Require(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b) { return MatchAll(a, b); }

void Unifier::Suggest(const std::vector<IndexExpr>& a, const std::vector<IndexExpr>& b) {
  const Side before_a = a_, before_b = b_;
  if (!MatchAll(a, b)) {
    a_ = before_a;
    b_ = before_b;
  }
}

bool Unifier::Finish() {
  const auto last_free = [](const Side& side) {
    for (size_t i = side.match.size(); i-- > 0;) {
      if (side.match[i] < 0) return static_cast<int32_t>(i);
    }
    return -1;
  };
  for (;;) {
    const int32_t a = last_free(a_), b = last_free(b_);
    if (a < 0 || b < 0) break;
    bool again = false;
    if (!MatchAtoms(a, b, &again)) return false;
  }
  // A side that ran out while it had free atoms at the start would leave a space that is no nest of the other.
  merged_ = a_.atoms;
  std::vector<IndexExpr> b_atoms(b_.atoms.size());
  for (size_t i = 0; i < b_.atoms.size(); ++i) {
    if (b_.match[i] >= 0) {
      b_atoms[i] = DimIndex(b_.match[i]);
    } else {
      b_atoms[i] = DimIndex(static_cast<int32_t>(merged_.size()));
      merged_.push_back(b_.atoms[i]);
    }
  }
  from_a_ = a_.of;
  from_b_.clear();
  for (const IndexExpr& expr : b_.of) {
    const std::optional<IndexExpr> moved = Substitute(expr, b_atoms, merged_);
    if (!moved) return false;
    from_b_.push_back(*moved);
  }
  return merged_.size() <= 60;
}

}  // namespace stepone::loops
