#include "compiler/loops/index_expr.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "proto/str_cat.h"

namespace stepone::loops {
namespace {

bool SameForm(const Term& a, const Term& b) {
  return a.dim == b.dim && a.divisor == b.divisor && a.modulus == b.modulus;
}

bool Before(const Term& a, const Term& b) {
  return std::tie(a.dim, a.divisor, a.modulus) < std::tie(b.dim, b.divisor, b.modulus);
}

bool Plain(const Term& term) { return term.divisor == 1 && term.modulus == 0; }

// Largest value of (i / divisor) % modulus, taken alone.
int64_t Span(const Term& term, const ir::Dims& sizes) {
  const int64_t last = (sizes[term.dim] - 1) / term.divisor;
  return term.modulus > 0 ? std::min(last, term.modulus - 1) : last;
}

}  // namespace

IndexExpr Constant(int64_t value) { return IndexExpr{.constant = value, .terms = {}}; }

IndexExpr DimIndex(int32_t dim, int64_t coefficient) {
  IndexExpr result;
  if (coefficient != 0) result.terms.push_back(Term{.coefficient = coefficient, .dim = dim});
  return result;
}

IndexExpr Add(const IndexExpr& a, const IndexExpr& b) {
  IndexExpr result;
  result.constant = a.constant + b.constant;
  result.terms.reserve(a.terms.size() + b.terms.size());
  size_t i = 0, j = 0;
  while (i < a.terms.size() || j < b.terms.size()) {
    if (j == b.terms.size() || (i < a.terms.size() && Before(a.terms[i], b.terms[j]))) {
      result.terms.push_back(a.terms[i++]);
    } else if (i == a.terms.size() || Before(b.terms[j], a.terms[i])) {
      result.terms.push_back(b.terms[j++]);
    } else {
      Term sum = a.terms[i++];
      sum.coefficient += b.terms[j++].coefficient;
      if (sum.coefficient != 0) result.terms.push_back(sum);
    }
  }
  return result;
}

IndexExpr AddConstant(IndexExpr a, int64_t value) {
  a.constant += value;
  return a;
}

IndexExpr Scale(IndexExpr a, int64_t factor) {
  if (factor == 0) return IndexExpr{};
  a.constant *= factor;
  for (Term& term : a.terms) term.coefficient *= factor;
  return a;
}

Range RangeOf(const Term& term, const ir::Dims& sizes) {
  const int64_t end = term.coefficient * Span(term, sizes);
  return {std::min<int64_t>(0, end), std::max<int64_t>(0, end)};
}

Range RangeOf(const IndexExpr& expr, const ir::Dims& sizes) {
  Range range{expr.constant, expr.constant};
  for (const Term& term : expr.terms) {
    const Range part = RangeOf(term, sizes);
    range.low += part.low;
    range.high += part.high;
  }
  return range;
}

int64_t Evaluate(const IndexExpr& expr, const ir::Dims& point) {
  int64_t value = expr.constant;
  for (const Term& term : expr.terms) {
    int64_t part = point[term.dim] / term.divisor;
    if (term.modulus > 0) part %= term.modulus;
    value += term.coefficient * part;
  }
  return value;
}

std::optional<DivMod> Divide(const IndexExpr& a, int64_t divisor, const ir::Dims& sizes, Split* split) {
  *split = Split{};
  DivMod result;
  if (divisor == 1) {
    result.quotient = a;
    return result;
  }
  // The constant's multiple goes out first, so that 3 + 128 i + 256 divides like 3 + 128 i.
  const int64_t whole = a.constant >= 0 ? a.constant / divisor : -((divisor - 1 - a.constant) / divisor);
  result.quotient.constant = whole;
  result.remainder.constant = a.constant - whole * divisor;
  for (const Term& term : a.terms) {
    if (term.coefficient % divisor == 0) {
      Term part = term;
      part.coefficient /= divisor;
      result.quotient.terms.push_back(part);
    } else {
      result.remainder.terms.push_back(term);
    }
  }
  const Range range = RangeOf(result.remainder, sizes);
  if (range.low >= 0 && range.high < divisor) return result;

  // A dim that runs across the boundary: i * c with divisor = c * inner, and i can be cut there.
  for (const Term& term : result.remainder.terms) {
    if (!Plain(term) || term.coefficient <= 0 || divisor % term.coefficient != 0) continue;
    const int64_t inner = divisor / term.coefficient;
    if (sizes[term.dim] > inner && sizes[term.dim] % inner == 0) {
      *split = Split{term.dim, inner};
      return std::nullopt;
    }
  }
  // One term alone: (c * (i / d % m)) / (c * k) is i / (d k) % (m / k).
  if (result.remainder.terms.size() == 1 && result.remainder.constant == 0) {
    const Term& term = result.remainder.terms[0];
    if (term.coefficient > 0 && divisor % term.coefficient == 0) {
      const int64_t k = divisor / term.coefficient;
      if (term.modulus == 0 || term.modulus % k == 0) {
        Term high = term, low = term;
        high.coefficient = 1;
        high.divisor = term.divisor * k;
        high.modulus = term.modulus == 0 ? 0 : term.modulus / k;
        if (high.modulus == 1) high.coefficient = 0;
        low.modulus = k;
        IndexExpr quotient;
        if (high.coefficient != 0) quotient.terms.push_back(high);
        result.quotient = Add(result.quotient, quotient);
        result.remainder.terms = {low};
        return result;
      }
    }
  }
  return std::nullopt;
}

IndexExpr Linearize(const std::vector<IndexExpr>& coordinates, const ir::Dims& shape) {
  IndexExpr position;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    position = Add(position, Scale(coordinates[i], stride));
    stride *= shape[i];
  }
  return position;
}

std::optional<std::vector<IndexExpr>> Delinearize(const IndexExpr& position, const ir::Dims& shape,
                                                  const ir::Dims& sizes, Split* split) {
  *split = Split{};
  std::vector<IndexExpr> coordinates(shape.size());
  IndexExpr rest = position;
  // The first dim of size above 1 takes all that is left: it needs no remainder.
  size_t first = 0;
  while (first < shape.size() && shape[first] == 1) ++first;
  for (size_t i = shape.size(); i-- > first;) {
    if (shape[i] == 1) continue;
    if (i == first) {
      coordinates[i] = rest;
      break;
    }
    std::optional<DivMod> parts = Divide(rest, shape[i], sizes, split);
    if (!parts) return std::nullopt;
    coordinates[i] = std::move(parts->remainder);
    rest = std::move(parts->quotient);
  }
  return coordinates;
}

std::optional<std::vector<IndexExpr>> ReshapeCoords(const std::vector<IndexExpr>& coordinates, const ir::Dims& from,
                                                    const ir::Dims& to, const ir::Dims& sizes, Split* split) {
  *split = Split{};
  std::vector<IndexExpr> result;
  size_t f = 0, t = 0;
  while (f < from.size() || t < to.size()) {
    // The shortest runs of dims from here on that hold equally many elements.
    size_t f_end = f, t_end = t;
    int64_t held = 1, wanted = 1;
    do {
      if (f_end < from.size() && (held <= wanted || t_end == to.size())) {
        held *= from[f_end++];
      } else if (t_end < to.size()) {
        wanted *= to[t_end++];
      }
    } while (held != wanted && (f_end < from.size() || t_end < to.size()));
    const ir::Dims part_from(from.begin() + static_cast<int64_t>(f), from.begin() + static_cast<int64_t>(f_end));
    const ir::Dims part_to(to.begin() + static_cast<int64_t>(t), to.begin() + static_cast<int64_t>(t_end));
    const std::vector<IndexExpr> part(coordinates.begin() + static_cast<int64_t>(f),
                                      coordinates.begin() + static_cast<int64_t>(f_end));
    std::optional<std::vector<IndexExpr>> moved = Delinearize(Linearize(part, part_from), part_to, sizes, split);
    if (!moved) return std::nullopt;
    result.insert(result.end(), moved->begin(), moved->end());
    f = f_end;
    t = t_end;
  }
  return result;
}

IndexExpr ApplySplit(const IndexExpr& expr, const Split& split) {
  IndexExpr result = Constant(expr.constant);
  for (const Term& term : expr.terms) {
    IndexExpr part;
    Term moved = term;
    if (term.dim < split.dim) {
      part.terms = {term};
    } else if (term.dim > split.dim) {
      moved.dim += 1;
      part.terms = {moved};
    } else if (Plain(term)) {
      part.terms = {Term{.coefficient = term.coefficient * split.inner, .dim = term.dim},
                    Term{.coefficient = term.coefficient, .dim = term.dim + 1}};
    } else if (term.divisor % split.inner == 0) {
      moved.divisor /= split.inner;  // the inner part is divided away
      part.terms = {moved};
    } else if (term.modulus > 0 && split.inner % (term.divisor * term.modulus) == 0) {
      moved.dim += 1;  // the outer part is a multiple of what the remainder drops
      part.terms = {moved};
    } else if (split.inner % term.divisor == 0 &&
               (term.modulus == 0 || term.modulus % (split.inner / term.divisor) == 0)) {
      const int64_t low = split.inner / term.divisor;
      Term outer = term, inner = term;
      outer.coefficient *= low;
      outer.divisor = 1;
      outer.modulus = term.modulus == 0 ? 0 : term.modulus / low;
      inner.dim += 1;
      inner.modulus = 0;
      part.terms = {outer, inner};
    } else {
      // Splits come from Divide, which never asks for one that cuts a term of this form.
      return IndexExpr{.constant = INT64_MIN, .terms = {}};
    }
    result = Add(result, part);
  }
  return result;
}

void ApplySplit(const Split& split, ir::Dims* sizes) {
  (*sizes)[split.dim] /= split.inner;
  sizes->insert(sizes->begin() + split.dim + 1, split.inner);
}

IndexExpr Renumber(const IndexExpr& expr, const std::vector<int32_t>& to) {
  IndexExpr result = Constant(expr.constant);
  for (Term term : expr.terms) {
    term.dim = to[term.dim];
    if (term.dim >= 0) result.terms.push_back(term);
  }
  std::sort(result.terms.begin(), result.terms.end(), Before);
  // Two dims may have become one.
  std::vector<Term> merged;
  for (const Term& term : result.terms) {
    if (!merged.empty() && SameForm(merged.back(), term)) {
      merged.back().coefficient += term.coefficient;
    } else {
      merged.push_back(term);
    }
  }
  result.terms = std::move(merged);
  std::erase_if(result.terms, [](const Term& term) { return term.coefficient == 0; });
  return result;
}

int64_t Coefficient(const IndexExpr& expr, int32_t dim, bool* only_plain) {
  int64_t coefficient = 0;
  for (const Term& term : expr.terms) {
    if (term.dim != dim) continue;
    if (Plain(term)) {
      coefficient = term.coefficient;
    } else if (only_plain != nullptr) {
      *only_plain = false;
    }
  }
  return coefficient;
}

bool DependsOn(const IndexExpr& expr, int32_t dim) {
  return std::any_of(expr.terms.begin(), expr.terms.end(), [dim](const Term& term) { return term.dim == dim; });
}

std::string ToString(const IndexExpr& expr) {
  std::string text;
  for (const Term& term : expr.terms) {
    if (!text.empty() && term.coefficient >= 0) text += "+";
    if (term.coefficient == -1) {
      text += "-";
    } else if (term.coefficient != 1) {
      absl::StrAppend(&text, term.coefficient, "*");
    }
    if (Plain(term)) {
      absl::StrAppend(&text, "d", term.dim);
    } else if (term.modulus == 0) {
      absl::StrAppend(&text, "(d", term.dim, "/", term.divisor, ")");
    } else if (term.divisor == 1) {
      absl::StrAppend(&text, "(d", term.dim, "%", term.modulus, ")");
    } else {
      absl::StrAppend(&text, "(d", term.dim, "/", term.divisor, "%", term.modulus, ")");
    }
  }
  if (text.empty()) return StrCat(expr.constant);
  if (expr.constant > 0) absl::StrAppend(&text, "+", expr.constant);
  if (expr.constant < 0) absl::StrAppend(&text, expr.constant);
  return text;
}

}  // namespace stepone::loops
