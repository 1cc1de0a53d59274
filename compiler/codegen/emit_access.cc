// Loads, stores and indices.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "compiler/codegen/kernel_emitter.h"
#include "compiler/loops/index_expr.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

using ir::DType;
using loops::IndirectTerm;
using loops::Inst;

constexpr int64_t kNarrowLimit = int64_t{1} << 31;

std::string Helper(const char* verb, const Inst& inst, bool far = false) {
  return StrCat("s1_", verb, far ? "_far_" : "_", ir::Name(inst.type));
}

}  // namespace

// Adds an indirect term to `access`: to its pointer when the index is one for all lanes, to its offsets otherwise.
void KernelEmitter::AppendIndirect(InstId id, size_t term_number, const std::string& guard_mask, bool narrow,
                                   Access& access) {
  const Inst& from = inst(id);
  const IndirectTerm& term = from.indirect[term_number];
  const Value& index = values_[from.args[term.arg]];
  const std::string name = StrCat("k", id, "_", term_number);
  if (!index.vector) {
    out_.Line(term.wrap ? "long " : "const long ", name, " = ", index.text, ";");
    if (term.wrap) out_.Line(name, " = ", name, " < 0 ? ", name, " + ", term.bound, " : ", name, ";");
    std::string bad = StrCat("(unsigned long)", name, " >= ", term.bound);
    if (!access.condition.empty()) bad = StrCat(access.condition, " && ", bad);
    if (!guard_mask.empty()) bad = StrCat("s1_any(", guard_mask, ") && ", bad);
    out_.Line("if (", bad, ") return 1;");
    access.pointer += StrCat(" + ", name, " * ", term.stride);
    return;
  }
  const std::string wide = index.type == DType::kInt64 ? index.text : StrCat("s1_to(", index.text, ", vl)");
  out_.Line(term.wrap ? "vl " : "const vl ", name, " = ", wide, ";");
  if (term.wrap) out_.Line(name, " = ", name, " < 0 ? ", name, " + ", term.bound, " : ", name, ";");
  const std::string bad = StrCat("s1_to((", name, " < 0) | (", name, " >= ", term.bound, "), vi)");
  const std::string check = StrCat("s1_any(", Both(bad, Both(guard_mask, ActiveMask())), ")");
  out_.Line("if (", access.condition.empty() ? "" : access.condition + " && ", check, ") return 1;");
  const std::string lanes = narrow ? StrCat("s1_to(", name, ", vi)") : name;
  const std::string scaled = StrCat(lanes, " * (", term.stride, narrow ? ")" : "L)");
  access.offsets = access.offsets.empty() ? scaled : StrCat(access.offsets, " + ", scaled);
}

KernelEmitter::Access KernelEmitter::MakeAccess(InstId id, bool vector) {
  const Inst& from = inst(id);
  Access access;
  std::string guard_mask;
  if (from.guard >= 0) {
    const Value& guard = values_[from.args[from.guard]];
    (guard.vector ? guard_mask : access.condition) = guard.text;
  }
  const LaneIndex lanes = IndexOfLanes(from.index, schedule_, kernel_.dims);
  access.pointer = StrCat("b", from.buffer, " + ", lanes.base);

  int64_t reach = std::abs(lanes.stride) * schedule_.lanes + lanes.extra_reach;
  bool varying_indirect = false;
  for (const IndirectTerm& term : from.indirect) {
    varying_indirect |= values_[from.args[term.arg]].vector;
    reach += std::abs(term.stride) * term.bound;
  }
  const bool narrow = reach < kNarrowLimit;
  access.far = !narrow;
  access.uniform = lanes.uniform() && !varying_indirect;
  const bool contiguous = lanes.stride == 1 && lanes.extra.empty() && !varying_indirect;
  if (vector && !access.uniform && !contiguous && (lanes.stride != 0 || !lanes.extra.empty())) {
    access.offsets = lanes.Offsets(narrow);
  }
  for (size_t i = 0; i < from.indirect.size(); ++i) AppendIndirect(id, i, guard_mask, narrow, access);
  access.mask = guard_mask;
  return access;
}

void KernelEmitter::EmitLoad(InstId id, bool vector) {
  const Inst& from = inst(id);
  const Access access = MakeAccess(id, vector);
  const Reg reg = RegOf(from.type);
  std::string text;
  if (!vector) {
    text = StrCat(Helper("get", from), "(", access.pointer, ")");
  } else if (access.uniform) {
    const std::string one = StrCat("(", VectorType(reg), ")", Helper("get", from), "(", access.pointer, ")");
    if (access.mask.empty()) {
      text = one;
    } else {
      const std::string mask = Both(access.mask, ActiveMask());
      const std::string wide = IsWide(reg) ? StrCat("s1_wide(", mask, ")") : StrCat("(", mask, ")");
      out_.Line(VectorType(reg), " z", id, " = 0;");
      out_.Line("if (s1_any(", mask, ")) z", id, " = ", wide, " ? ", one, " : (", VectorType(reg), ")0;");
      text = StrCat("z", id);
    }
  } else if (access.offsets.empty()) {
    if (!access.mask.empty()) {
      text = StrCat(Helper("load_m", from), "(", access.pointer, ", ", Both(access.mask, ActiveMask()), ")");
    } else if (Partial()) {
      text = StrCat(Helper("load_n", from), "(", access.pointer, ", ", tail_, ")");
    } else {
      text = StrCat(Helper("load", from), "(", access.pointer, ")");
    }
  } else {
    const std::string mask = Both(access.mask, ActiveMask());
    text = mask.empty() ? StrCat(Helper("gather", from, access.far), "(", access.pointer, ", ", access.offsets, ")")
                        : StrCat(Helper("gather_m", from, access.far), "(", access.pointer, ", ", access.offsets, ", ",
                                 mask, ")");
  }
  if (access.condition.empty()) return Define(id, vector, text);
  out_.Line(vector ? VectorType(reg) : ScalarType(reg), " g", id, " = 0;");
  out_.Line("if (", access.condition, ") g", id, " = ", text, ";");
  Define(id, vector, StrCat("g", id));
}

void KernelEmitter::EmitStore(InstId id, bool vector) {
  const Inst& from = inst(id);
  const Access access = MakeAccess(id, vector);
  const Value& value = values_[from.args[0]];
  std::string text;
  if (!vector) {
    text = StrCat(Helper("set", from), "(", access.pointer, ", ", value.text, ")");
  } else if (access.offsets.empty() && !access.uniform) {
    const std::string x = AsVector(value);
    if (!access.mask.empty()) {
      text = StrCat(Helper("store_m", from), "(", access.pointer, ", ", x, ", ", Both(access.mask, ActiveMask()), ")");
    } else if (Partial()) {
      text = StrCat(Helper("store_n", from), "(", access.pointer, ", ", x, ", ", tail_, ")");
    } else {
      text = StrCat(Helper("store", from), "(", access.pointer, ", ", x, ")");
    }
  } else {
    const std::string mask = Both(access.mask, ActiveMask());
    const std::string offsets = access.uniform ? (access.far ? "(vl)0" : "(vi)0") : access.offsets;
    text = StrCat(Helper(mask.empty() ? "scatter" : "scatter_m", from, access.far), "(", access.pointer, ", ", offsets,
                  ", ", AsVector(value), mask.empty() ? "" : ", " + mask, ")");
  }
  out_.Line(access.condition.empty() ? "" : StrCat("if (", access.condition, ") "), text, ";");
}

// Lanes may meet in one element, so unless they are neighbours they are added one after the other.
void KernelEmitter::EmitStoreAdd(InstId id, bool vector) {
  const Inst& from = inst(id);
  const Access access = MakeAccess(id, vector);
  const Value& value = values_[from.args[0]];
  const bool any = from.type == DType::kBool;
  const auto sum = [&](const std::string& a, const std::string& b, bool lanes) {
    return any ? StrCat(a, " | ", b) : Narrowed(StrCat(a, " + ", b), from.type, lanes);
  };
  const std::string condition = access.condition.empty() ? "" : StrCat("if (", access.condition, ") ");
  const std::string get = Helper("get", from), set = Helper("set", from);
  if (!vector) {
    out_.Line(condition, set, "(", access.pointer, ", ", sum(StrCat(get, "(", access.pointer, ")"), value.text, false),
              ");");
    return;
  }
  if (access.offsets.empty() && !access.uniform && access.mask.empty()) {
    const std::string x = AsVector(value);
    const std::string count = Partial() ? StrCat(", ", tail_) : "";
    const std::string old = StrCat(Helper(Partial() ? "load_n" : "load", from), "(", access.pointer, count, ")");
    out_.Line(condition, Helper(Partial() ? "store_n" : "store", from), "(", access.pointer, ", ", sum(old, x, true),
              count, ");");
    return;
  }
  const std::string offsets = !access.offsets.empty() ? access.offsets
                              : access.uniform        ? (access.far ? "(vl)0" : "(vi)0")
                                                      : (access.far ? "s1_iotal" : "s1_iota");
  const std::string mask = Both(access.mask, ActiveMask());
  out_.Open(condition.empty() ? "" : condition);
  out_.Line("const ", access.far ? "vl" : "vi", " o = ", offsets, ";");
  out_.Line("const ", VectorType(RegOf(from.type)), " v = ", AsVector(value), ";");
  if (!mask.empty()) out_.Line("const vi m = ", mask, ";");
  out_.Open("for (int l = 0; l < W; ++l)");
  out_.Line(StorageType(from.type), "* const p = ", access.pointer, " + o[l];");
  out_.Line(mask.empty() ? "" : "if (m[l]) ", set, "(p, ", sum(StrCat(get, "(p)"), "v[l]", false), ");");
  out_.Close();
  out_.Close();
}

void KernelEmitter::EmitIndex(InstId id, bool vector) {
  const LaneIndex lanes = IndexOfLanes(inst(id).index, schedule_, kernel_.dims);
  Define(id, vector, vector ? lanes.Vector(false) : lanes.base);
}

void KernelEmitter::EmitInBounds(InstId id, bool vector) {
  const Inst& from = inst(id);
  const LaneIndex lanes = IndexOfLanes(from.index, schedule_, kernel_.dims);
  if (!vector) {
    Define(id, false, StrCat("-(", lanes.base, " >= ", from.low, " && ", lanes.base, " < ", from.high, ")"));
    return;
  }
  ir::Dims padded = kernel_.dims;
  padded[schedule_.lane_dim] = schedule_.lane_groups() * schedule_.lanes;
  const loops::Range range = loops::RangeOf(from.index, padded);
  const auto narrow = [](int64_t value) { return std::abs(value) < kNarrowLimit - 1; };
  if (narrow(range.low) && narrow(range.high) && narrow(from.low) && narrow(from.high) && !lanes.extra_wide) {
    out_.Line("const vi n", id, " = ", lanes.Vector(true), ";");
    Define(id, true, StrCat("(n", id, " >= ", from.low, ") & (n", id, " < ", from.high, ")"));
  } else {
    out_.Line("const vl n", id, " = ", lanes.Vector(false), ";");
    Define(id, true, StrCat("s1_to((n", id, " >= ", from.low, "L) & (n", id, " < ", from.high, "L), vi)"));
  }
}

void KernelEmitter::EmitRandom(InstId id, bool vector) {
  const Inst& from = inst(id);
  const Value& seed = values_[from.args[0]];
  if (seed.vector) return Fail(absl::UnimplementedError("random with a seed per element"));
  const LaneIndex lanes = IndexOfLanes(from.index, schedule_, kernel_.dims);
  const std::string key = StrCat("s1_random_key(", seed.text, ", ", from.integer, "L)");
  Define(id, vector,
         StrCat("s1_random(", vector ? lanes.Vector(false) : StrCat("(vl)(", lanes.base, ")"), ", ", key, ")",
                vector ? "" : "[0]"));
}

}  // namespace stepone::codegen
