#include "compiler/codegen/lane_index.h"

#include <cstdlib>

#include "compiler/loops/index_expr.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

using loops::Term;

// "3 * (i1 / 4 % 5)", and "" for no coefficient.
std::string TermText(const Term& term, const std::string& variable) {
  std::string text = variable;
  if (term.divisor != 1) text += StrCat(" / ", term.divisor);
  if (term.modulus != 0) text += StrCat(" % ", term.modulus);
  if (term.coefficient == 1) return text;
  if (term.divisor != 1 || term.modulus != 0) text = StrCat("(", text, ")");
  return StrCat(text, " * ", term.coefficient < 0 ? StrCat("(", term.coefficient, ")") : StrCat(term.coefficient));
}

void Append(std::string& sum, const std::string& text) { sum += sum.empty() ? text : " + " + text; }

// A term of the lane dim that is neither the same nor evenly spaced in all lanes.
void AppendIrregular(const Term& term, int64_t dim_size, int64_t reach, LaneIndex& index) {
  const bool wide = dim_size >= (int64_t{1} << 30);
  const bool far = reach >= (int64_t{1} << 30);
  const std::string variable = StrCat("i", term.dim);
  std::string lanes =
      wide ? StrCat("((vul)((vl)", variable, " + s1_iotal)") : StrCat("((vu)((vi)(int)", variable, " + s1_iota)");
  if (term.divisor != 1) lanes += StrCat(" / ", term.divisor);
  if (term.modulus != 0) lanes += StrCat(" % ", term.modulus);
  lanes += ")";
  // Divided numbers are small and not negative, so the signed type holds them.
  if (wide && !far) {
    lanes = StrCat("s1_to(", lanes, ", vi)");
  } else if (far) {
    lanes = StrCat("s1_to(", lanes, ", vl)");
  } else {
    lanes = StrCat("(vi)", lanes);
  }
  if (far && !index.extra_wide && !index.extra.empty()) index.extra = StrCat("s1_to(", index.extra, ", vl)");
  if (!far && index.extra_wide) lanes = StrCat("s1_to(", lanes, ", vl)");
  index.extra_wide |= far;
  if (term.coefficient != 1) lanes = StrCat(lanes, " * (", term.coefficient, index.extra_wide ? "L)" : ")");
  Append(index.extra, lanes);
}

}  // namespace

std::string LaneIndex::Offsets(bool narrow) const {
  const std::string type = narrow ? "vi" : "vl";
  std::string text;
  if (stride != 0) {
    text = narrow ? "s1_iota" : "s1_iotal";
    if (stride != 1) text += StrCat(" * (", stride, narrow ? ")" : "L)");
  }
  if (!extra.empty()) {
    std::string more = extra;
    if (narrow == extra_wide) more = StrCat("s1_to(", extra, ", ", type, ")");
    Append(text, more);
  }
  return text.empty() ? StrCat("(", type, ")0") : text;
}

std::string LaneIndex::Vector(bool narrow) const {
  return StrCat(narrow ? "(vi)(int)(" : "(vl)(", base, ") + ", Offsets(narrow));
}

LaneIndex IndexOfLanes(const loops::IndexExpr& expr, const Schedule& schedule, const ir::Dims& dims) {
  LaneIndex index;
  for (const Term& term : expr.terms) {
    const std::string variable = StrCat("i", term.dim);
    if (term.dim != schedule.lane_dim) {
      Append(index.base, TermText(term, variable));
    } else if (term.divisor == 1 && (term.modulus == 0 || term.modulus % schedule.lanes == 0)) {
      Append(index.base, TermText(term, variable));
      index.stride += term.coefficient;
    } else if (term.divisor % schedule.lanes == 0) {
      Append(index.base, TermText(term, variable));
    } else {
      // Lanes past the end of the dim count too.
      ir::Dims padded = dims;
      padded[term.dim] = schedule.lane_groups() * schedule.lanes;
      const loops::Range range = loops::RangeOf(term, padded);
      const int64_t reach = std::max(std::abs(range.low), std::abs(range.high));
      AppendIrregular(term, dims[term.dim], reach, index);
      index.extra_reach += reach;
    }
  }
  if (expr.constant != 0 || index.base.empty()) {
    Append(index.base, expr.constant < 0 ? StrCat("(", expr.constant, ")") : StrCat(expr.constant));
  }
  return index;
}

}  // namespace stepone::codegen
