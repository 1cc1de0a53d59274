// Loops over the columns of a row, and reductions over them.
#include <algorithm>
#include <string>

#include "compiler/codegen/kernel_emitter.h"
#include "compiler/loops/index_expr.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

using ir::DType;
using ir::Op;
using loops::Code;
using loops::Stage;

// Additions in a row that one float32 lane takes before its total goes to a float64 one: a running float32 sum of equal
// numbers is off by up to n * 2^-25.
constexpr int64_t kChain = 64;

bool IsArg(Op op) { return op == Op::kArgMax || op == Op::kArgMin; }

std::string Lowest(DType type) {
  switch (type) {
    case DType::kInt64:
      return "(-0x7fffffffffffffffL - 1)";
    case DType::kInt32:
      return "(-0x7fffffff - 1)";
    case DType::kInt16:
      return "(-32768)";
    case DType::kInt8:
      return "(-128)";
    case DType::kUInt8:
      return "0";
    case DType::kFloat64:
      return "(-__builtin_inf())";
    default:
      return "(-__builtin_inff())";
  }
}

std::string Highest(DType type) {
  switch (type) {
    case DType::kInt64:
      return "0x7fffffffffffffffL";
    case DType::kInt32:
      return "0x7fffffff";
    case DType::kInt16:
      return "32767";
    case DType::kInt8:
      return "127";
    case DType::kUInt8:
      return "255";
    case DType::kFloat64:
      return "__builtin_inf()";
    default:
      return "__builtin_inff()";
  }
}

// What a bool reduction does: or, and.
bool IsOr(Op op) { return op == Op::kAny || op == Op::kMax || op == Op::kSum; }

}  // namespace

std::string Neutral(Op op, DType type) {
  if (type == DType::kBool) return IsOr(op) ? "0" : "(-1)";
  switch (op) {
    case Op::kMax:
    case Op::kArgMax:
      return Lowest(type);
    case Op::kMin:
    case Op::kArgMin:
      return Highest(type);
    case Op::kProd:
      return "1";
    default:
      return "0";
  }
}

std::string Combine(Op op, DType type, const std::string& a, const std::string& b) {
  if (type == DType::kBool) return StrCat(a, IsOr(op) ? " | " : " & ", b);
  switch (op) {
    case Op::kMax:
      return StrCat("s1_max_", Suffix(RegOf(type)), "(", a, ", ", b, ")");
    case Op::kMin:
      return StrCat("s1_min_", Suffix(RegOf(type)), "(", a, ", ", b, ")");
    case Op::kProd:
      return StrCat(a, " * ", b);
    default:
      return StrCat(a, " + ", b);
  }
}

std::string HorizontalText(Op op, DType type, const std::string& x) {
  if (type == DType::kBool) return StrCat("-", IsOr(op) ? "s1_any(" : "s1_all(", x, ")");
  const char* name = op == Op::kMax ? "max" : op == Op::kMin ? "min" : op == Op::kProd ? "prod" : "sum";
  return StrCat("s1_h", name, "_", Suffix(RegOf(type)), "(", x, ")");
}

void KernelEmitter::EmitElementStage(const Stage& stage) {
  copies_ = ChooseCopies(stage);
  DeclareReductions(stage);
  for (int32_t d : schedule_.column_dims)
    out_.Open("for (long i", d, " = 0; i", d, " < ", kernel_.dims[d], "; ++i", d, ")");
  for (InstId id : stage.insts) {
    if (IsHoisted(id)) EmitInst(id);
  }
  EmitInnerLoop(stage);
  for (size_t i = 0; i < schedule_.column_dims.size(); ++i) out_.Close();
  FinishReductions(stage);
  copies_ = 1;
}

// Computed once before the innermost loop. Not what a store of this kernel could change meanwhile.
bool KernelEmitter::IsHoisted(InstId id) const {
  const Inst& from = inst(id);
  if (varies_inner_[id] || schedule_.inner_dim < 0) return false;
  switch (from.code) {
    case Code::kStore:
    case Code::kStoreAdd:
    case Code::kReduce:
    case Code::kAccumulate:
    case Code::kStash:
    case Code::kUnstash:
      return false;
    case Code::kLoad:
      if (buffer_written_[from.buffer]) return false;
      break;
    default:
      break;
  }
  return std::all_of(from.args.begin(), from.args.end(),
                     [&](InstId arg) { return stage_of_[arg] != stage_of_[id] || IsHoisted(arg); });
}

// Several copies of the body break the chain of additions, as far as the body does not hide it.
int KernelEmitter::ChooseCopies(const Stage& stage) const {
  if (schedule_.inner_dim < 0) return 1;
  double cycles = 0;
  bool reduces = false;
  for (InstId id : stage.insts) {
    if (IsHoisted(id)) continue;
    cycles += CyclesPerVector(inst(id));
    reduces |= inst(id).code == Code::kReduce;
  }
  const int64_t step = schedule_.lane_outer ? 1 : schedule_.lanes;
  const int64_t iterations = inner_.full / step;
  if (!reduces) return 1;
  const int wanted = cycles <= 5 ? 4 : cycles <= 14 ? 2 : 1;
  for (int copies = wanted; copies > 1; copies /= 2) {
    if (iterations >= copies) return copies;
  }
  return 1;
}

bool KernelEmitter::IsFolded(const Inst& from) const {
  if (from.code != Code::kReduce || from.op != Op::kSum || RegOf(from.type) != Reg::kF32) return false;
  const int64_t step = schedule_.lane_outer ? 1 : schedule_.lanes;
  return ColumnCount() / step / copies_ > kChain;
}

bool KernelEmitter::NeedsFold(const Stage& stage) const {
  return std::any_of(stage.insts.begin(), stage.insts.end(), [&](InstId id) { return IsFolded(inst(id)); });
}

void KernelEmitter::DeclareReductions(const Stage& stage) {
  for (InstId id : stage.insts) {
    const Inst& from = inst(id);
    if (from.code != Code::kReduce) continue;
    const DType type = inst(from.args[0]).type;
    // Truth values compare as 0 and 1 in argmax.
    const DType lane_type = IsArg(from.op) && type == DType::kBool ? DType::kUInt8 : type;
    const Reg reg = RegOf(lane_type);
    for (int c = 0; c < copies_; ++c) {
      out_.Line(VectorType(reg), " a", id, "_", c, " = (", VectorType(reg), ")", Neutral(from.op, lane_type), ";");
      if (!IsArg(from.op)) continue;
      out_.Line(IsWide(reg) ? "vl" : "vi", " w", id, "_", c, " = (", IsWide(reg) ? "vl" : "vi", ")",
                IsWide(reg) ? "0x7fffffffffffffffL" : "0x7fffffff", ";");
    }
    if (IsFolded(from)) out_.Line("vd d", id, " = 0;");
  }
  if (NeedsFold(stage)) out_.Line("int f", stage_of_[stage.insts[0]], " = 0;");
}

void KernelEmitter::EmitReduceStep(InstId id) {
  const Inst& from = inst(id);
  const Value& value = values_[from.args[0]];
  const Reg reg = RegOf(value.type);
  const bool mask = Partial() && !schedule_.lane_outer;
  const std::string lanes = mask ? (IsWide(reg) ? StrCat("s1_wide(", ActiveMask(), ")") : ActiveMask()) : "";
  std::string x = AsVector(value);
  const std::string total = StrCat("a", id, "_", copy_);
  if (IsArg(from.op)) {
    if (value.type == DType::kBool) x = StrCat("(", x, " & 1)");
    const char* type = IsWide(reg) ? "vl" : "vi";
    const LaneIndex position = IndexOfLanes(ColumnIndex(), schedule_, kernel_.dims);
    out_.Line("s1_", ir::Name(from.op), "_", Suffix(reg), "(&", total, ", &w", id, "_", copy_, ", ", x, ", ",
              position.Vector(!IsWide(reg)), ", ", lanes.empty() ? StrCat("(", type, ")-1") : lanes, ");");
    return;
  }
  if (mask) x = StrCat("(", lanes, " ? ", x, " : (", VectorType(reg), ")", Neutral(from.op, value.type), ")");
  out_.Line(total, " = ", Combine(from.op, value.type, total, x), ";");
}

// The row-major position of a column in its row.
loops::IndexExpr KernelEmitter::ColumnIndex() const {
  loops::IndexExpr position;
  int64_t below = 1;
  for (size_t d = kernel_.dims.size(); d-- > static_cast<size_t>(kernel_.num_outer);) {
    position.terms.insert(position.terms.begin(), {.coefficient = below, .dim = static_cast<int32_t>(d)});
    below *= kernel_.dims[d];
  }
  return position;
}

std::string KernelEmitter::ColumnPosition() const { return IndexOfLanes(ColumnIndex(), schedule_, kernel_.dims).base; }

void KernelEmitter::EmitInnerBody(const Stage& stage) {
  for (InstId id : stage.insts) {
    if (!IsHoisted(id)) EmitInst(id);
  }
}

void KernelEmitter::EmitInnerLoop(const Stage& stage) {
  if (schedule_.inner_dim < 0) {
    out_.Open("");
    EmitInnerBody(stage);
    return out_.Close();
  }
  const int64_t step = schedule_.lane_outer ? 1 : schedule_.lanes;
  const int64_t iterations = inner_.full / step / copies_;
  const bool fold = NeedsFold(stage);
  if (fold && iterations > kChain) {
    const int64_t block = kChain * copies_ * step;
    out_.Open("for (long j_begin = 0; j_begin < ", inner_.full, "; j_begin += ", block, ")");
    out_.Line("const long j_end = j_begin + ", block, " < ", inner_.full, " ? j_begin + ", block, " : ", inner_.full,
              ";");
    EmitLoop(stage, "j_begin", "j_end");
    EmitFold(stage);
    out_.Close();
  } else if (inner_.full > 0) {
    EmitLoop(stage, inner_.begin, inner_.end);
  }
  if (!schedule_.lane_outer && schedule_.lane_tail() > 0) {
    out_.Open(inner_.tail_condition.empty() ? "" : StrCat("if (", inner_.tail_condition, ")"));
    out_.Line("const long i", schedule_.inner_dim, " = ", inner_.full, ";");
    tail_ = schedule_.lane_tail();
    EmitInnerBody(stage);
    tail_ = 0;
    out_.Close();
  }
  if (fold && iterations <= kChain) {
    const int64_t rounds = std::max<int64_t>(1, kChain / std::max<int64_t>(1, iterations));
    out_.Open("if (++f", stage_of_[stage.insts[0]], " == ", rounds, ")");
    EmitFold(stage);
    out_.Line("f", stage_of_[stage.insts[0]], " = 0;");
    out_.Close();
  }
}

// The inner loop over whole vectors, in copies_ copies and one by one.
void KernelEmitter::EmitLoop(const Stage& stage, const std::string& begin, const std::string& end) {
  const int64_t step = schedule_.lane_outer ? 1 : schedule_.lanes;
  const std::string variable = StrCat("i", schedule_.inner_dim);
  if (copies_ == 1) {
    out_.Open("for (long ", variable, " = ", begin, "; ", variable, " < ", end, "; ", variable, " += ", step, ")");
    EmitInnerBody(stage);
    return out_.Close();
  }
  out_.Open("");
  out_.Line("long j = ", begin, ";");
  out_.Open("for (; j + ", copies_ * step, " <= ", end, "; j += ", copies_ * step, ")");
  for (copy_ = 0; copy_ < copies_; ++copy_) {
    out_.Open("");
    out_.Line("const long ", variable, " = j + ", copy_ * step, ";");
    EmitInnerBody(stage);
    out_.Close();
  }
  copy_ = 0;
  out_.Close();
  if (inner_.full % (copies_ * step) != 0) {
    out_.Open("for (; j < ", end, "; j += ", step, ")");
    out_.Line("const long ", variable, " = j;");
    EmitInnerBody(stage);
    out_.Close();
  }
  out_.Close();
}

// The copies' totals, combined pairwise.
std::string KernelEmitter::CombinedCopies(InstId id) const {
  const Inst& from = inst(id);
  const DType type = inst(from.args[0]).type;
  const auto total = [&](int c) { return StrCat("a", id, "_", c); };
  if (copies_ == 1) return total(0);
  const std::string low = Combine(from.op, type, total(0), total(1));
  if (copies_ == 2) return low;
  return Combine(from.op, type, StrCat("(", low, ")"), StrCat("(", Combine(from.op, type, total(2), total(3)), ")"));
}

void KernelEmitter::EmitFold(const Stage& stage) {
  for (InstId id : stage.insts) {
    if (!IsFolded(inst(id))) continue;
    out_.Line("d", id, " += s1_to(", CombinedCopies(id), ", vd);");
    for (int c = 0; c < copies_; ++c) out_.Line("a", id, "_", c, " = 0;");
  }
}

void KernelEmitter::FinishReductions(const Stage& stage) {
  EmitFold(stage);
  for (InstId id : stage.insts) {
    const Inst& from = inst(id);
    if (from.code != Code::kReduce) continue;
    if (IsArg(from.op)) {
      FinishArgReduction(id);
      continue;
    }
    std::string text = IsFolded(from) ? StrCat("d", id) : StrCat("(", CombinedCopies(id), ")");
    if (IsFolded(from)) {
      text = schedule_.lane_outer ? StrCat("s1_to(", text, ", vf)") : StrCat("(float)s1_hsum_d(", text, ")");
    } else if (!schedule_.lane_outer) {
      text = HorizontalText(from.op, from.type, text);
    }
    Define(id, schedule_.lane_outer, Narrowed(text, from.type, schedule_.lane_outer));
  }
}

void KernelEmitter::FinishArgReduction(InstId id) {
  const Inst& from = inst(id);
  const std::string name(ir::Name(from.op)), k = Suffix(RegOf(inst(from.args[0]).type));
  for (int c = 1; c < copies_; ++c) {
    out_.Line("s1_", name, "_merge_", k, "(&a", id, "_0, &w", id, "_0, a", id, "_", c, ", w", id, "_", c, ");");
  }
  if (schedule_.lane_outer) {
    Define(id, true, StrCat("s1_v", name, "_", k, "(w", id, "_0)"));
  } else {
    Define(id, false, StrCat("s1_h", name, "_", k, "(a", id, "_0, w", id, "_0)"));
  }
}

}  // namespace stepone::codegen
