// Totals over the rows of a shard.
//
// With lanes along columns, a total is the shard's slice of the partial buffer itself: it stays in the cache, and a
// batch of rows passes through registers for each load and store. With lanes along rows, there is a vector of totals
// for each column, whose lanes are added up at the end. Long float32 sums go to float64 totals every kChain rows.
#include <algorithm>
#include <string>

#include "compiler/codegen/kernel_emitter.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

using ir::DType;
using ir::Op;
using loops::Code;
using loops::Stage;

constexpr int64_t kChain = 128;
constexpr int64_t kMaxTotalBytes = 256 << 10;  // on the stack

}  // namespace

std::vector<loops::InstId> KernelEmitter::Accumulates() const {
  std::vector<InstId> ids;
  for (const Stage& stage : schedule_.stages) {
    for (InstId id : stage.insts) {
      if (inst(id).code == Code::kAccumulate) ids.push_back(id);
    }
  }
  return ids;
}

bool KernelEmitter::IsFoldedTotal(InstId id) const {
  const Inst& from = inst(id);
  if (from.op != Op::kSum || RegOf(from.type) != Reg::kF32 || !InElement(id) || IsDirectTotal(id)) return false;
  const int64_t each = ColumnCount() * 8 * (schedule_.lane_outer ? schedule_.lanes : 1);
  return schedule_.rows / kernel_.shards > 2 * kChain &&
         each * static_cast<int64_t>(Accumulates().size()) <= kMaxTotalBytes;
}

bool KernelEmitter::IsDirectTotal(InstId id) const {
  return schedule_.lane_outer && InElement(id) &&
         ColumnCount() * schedule_.lanes * 4 * static_cast<int64_t>(Accumulates().size()) > kMaxTotalBytes;
}

void KernelEmitter::DeclareAccumulators() {
  bool folds = false;
  for (InstId id : Accumulates()) {
    if (schedule_.lane_outer && !IsDirectTotal(id)) {
      DeclareLaneTotals(id);
    } else {
      DeclareColumnTotals(id);
    }
    folds |= IsFoldedTotal(id);
  }
  if (folds) out_.Line("int rows_done = 0;");
}

void KernelEmitter::DeclareColumnTotals(InstId id) {
  const Inst& from = inst(id);
  const Reg reg = RegOf(from.type);
  const std::string neutral = Neutral(from.op, from.type);
  if (!InElement(id)) {
    // One number: the sum of float32 ones may as well be kept in float64.
    const bool sum = from.op == Op::kSum && reg == Reg::kF32;
    return out_.Line(sum ? "double" : ScalarType(reg), " t", id, " = ", neutral, ";");
  }
  const int64_t columns = ColumnCount();
  out_.Line(StorageType(from.type), "* const p", id, " = b", from.buffer, " + u * ", columns, ";");
  if (IsFoldedTotal(id)) out_.Line("double d", id, "[", columns, "];");
  out_.Open("for (long n = 0; n < ", columns, "; ++n)");
  out_.Line("s1_set_", ir::Name(from.type), "(p", id, " + n, ", neutral, ");");
  if (IsFoldedTotal(id)) out_.Line("d", id, "[n] = 0;");
  out_.Close();
}

void KernelEmitter::DeclareLaneTotals(InstId id) {
  const Inst& from = inst(id);
  const Reg reg = RegOf(from.type);
  const std::string neutral = StrCat("(", VectorType(reg), ")", Neutral(from.op, from.type));
  if (!InElement(id)) {
    const bool sum = from.op == Op::kSum && reg == Reg::kF32;
    return out_.Line(sum ? "vd" : VectorType(reg), " t", id, " = ", sum ? "0" : neutral, ";");
  }
  out_.Line(VectorType(reg), " t", id, "[", ColumnCount(), "];");
  if (IsFoldedTotal(id)) out_.Line("vd d", id, "[", ColumnCount(), "];");
  out_.Open("for (long n = 0; n < ", ColumnCount(), "; ++n)");
  out_.Line("t", id, "[n] = ", neutral, ";");
  if (IsFoldedTotal(id)) out_.Line("d", id, "[n] = 0;");
  out_.Close();
}

void KernelEmitter::EmitAccumulateStep(InstId id) {
  if (schedule_.lane_outer) return EmitLaneStep(id);
  const Inst& from = inst(id);
  const Value& value = values_[from.args[0]];
  const std::string total = StrCat("t", id);
  if (!InElement(id)) {
    const std::string x = StrCat("(", VectorType(RegOf(value.type)), ")", value.text);
    const bool call = from.op == Op::kMax || from.op == Op::kMin;
    const std::string sum =
        call && value.type != DType::kBool
            ? Combine(from.op, value.type, StrCat("(", VectorType(RegOf(value.type)), ")", total), x) + "[0]"
            : Combine(from.op, value.type, total, value.text);
    return out_.Line(total, " = ", sum, ";");
  }
  if (totals_in_registers_) {
    return out_.Line(total, " = ", Combine(from.op, value.type, total, AsVector(value)), ";");
  }
  out_.Line(StoreTotal(id, Combine(from.op, value.type, LoadTotal(id), AsVector(value))), ";");
}

// Lanes are rows: `t<n>` or `t<n>[column]` holds a vector of totals.
void KernelEmitter::EmitLaneStep(InstId id) {
  const Inst& from = inst(id);
  const Value& value = values_[from.args[0]];
  const Reg reg = RegOf(value.type);
  std::string x = AsVector(value);
  if (Partial()) {
    const std::string mask = IsWide(reg) ? StrCat("s1_wide(", ActiveMask(), ")") : ActiveMask();
    x = StrCat("(", mask, " ? ", x, " : (", VectorType(reg), ")", Neutral(from.op, value.type), ")");
  }
  if (IsDirectTotal(id)) {
    const std::string at = StrCat("p", id, " + ", ColumnPosition());
    const std::string old = StrCat("(", VectorType(reg), ")s1_get_", ir::Name(from.type), "(", at, ")");
    const std::string one = StrCat("(", VectorType(reg), ")", HorizontalText(from.op, value.type, x));
    const std::string sum = Narrowed(StrCat("(", Combine(from.op, value.type, old, one), ")[0]"), from.type, false);
    return out_.Line("s1_set_", ir::Name(from.type), "(", at, ", ", sum, ");");
  }
  if (!InElement(id)) {
    const std::string total = StrCat("t", id);
    if (from.op == Op::kSum && reg == Reg::kF32) return out_.Line(total, " += s1_to(", x, ", vd);");
    return out_.Line(total, " = ", Combine(from.op, value.type, total, x), ";");
  }
  const std::string total = StrCat("t", id, "[", ColumnPosition(), "]");
  out_.Line(total, " = ", Combine(from.op, value.type, total, x), ";");
}

// Pointer to the totals of the current columns; `offsets` is set when they are not neighbours.
std::string KernelEmitter::TotalPointer(InstId id, std::string* offsets) const {
  const LaneIndex position = IndexOfLanes(ColumnIndex(), schedule_, kernel_.dims);
  offsets->clear();
  if (position.stride != 1) *offsets = position.Offsets(false);
  return StrCat("p", id, " + ", position.base);
}

std::string KernelEmitter::LoadTotal(InstId id) const {
  const std::string type(ir::Name(inst(id).type));
  std::string offsets;
  const std::string pointer = TotalPointer(id, &offsets);
  if (!offsets.empty()) {
    return Partial() ? StrCat("s1_gather_m_far_", type, "(", pointer, ", ", offsets, ", ", ActiveMask(), ")")
                     : StrCat("s1_gather_far_", type, "(", pointer, ", ", offsets, ")");
  }
  return Partial() ? StrCat("s1_load_n_", type, "(", pointer, ", ", tail_, ")")
                   : StrCat("s1_load_", type, "(", pointer, ")");
}

std::string KernelEmitter::StoreTotal(InstId id, const std::string& total) const {
  const std::string type(ir::Name(inst(id).type));
  const std::string x = Narrowed(total, inst(id).type, true);
  std::string offsets;
  const std::string pointer = TotalPointer(id, &offsets);
  if (!offsets.empty()) {
    return Partial() ? StrCat("s1_scatter_m_far_", type, "(", pointer, ", ", offsets, ", ", x, ", ", ActiveMask(), ")")
                     : StrCat("s1_scatter_far_", type, "(", pointer, ", ", offsets, ", ", x, ")");
  }
  return Partial() ? StrCat("s1_store_n_", type, "(", pointer, ", ", x, ", ", tail_, ")")
                   : StrCat("s1_store_", type, "(", pointer, ", ", x, ")");
}

// A stage with accumulates, for a batch of rows: columns outside, rows inside, totals in registers.
void KernelEmitter::EmitAccumulateStage(const Stage& stage) {
  for (int32_t d : schedule_.column_dims)
    out_.Open("for (long i", d, " = 0; i", d, " < ", kernel_.dims[d], "; ++i", d, ")");
  const std::string variable = StrCat("i", schedule_.inner_dim);
  if (inner_.full > 0) {
    out_.Open("for (long ", variable, " = 0; ", variable, " < ", inner_.full, "; ", variable, " += ", schedule_.lanes,
              ")");
    EmitAccumulateVector(stage);
    out_.Close();
  }
  if (schedule_.lane_tail() > 0) {
    out_.Open("");
    out_.Line("const long ", variable, " = ", inner_.full, ";");
    tail_ = schedule_.lane_tail();
    EmitAccumulateVector(stage);
    tail_ = 0;
    out_.Close();
  }
  for (size_t i = 0; i < schedule_.column_dims.size(); ++i) out_.Close();
}

void KernelEmitter::EmitAccumulateVector(const Stage& stage) {
  const auto for_each = [&](auto&& action) {
    for (InstId id : stage.insts) {
      if (inst(id).code == Code::kAccumulate) action(id);
    }
  };
  for_each([&](InstId id) { out_.Line(VectorType(RegOf(inst(id).type)), " t", id, " = ", LoadTotal(id), ";"); });
  out_.Open("for (long k = 0; k < batch; ++k)");
  EmitBatchRow(stage);
  totals_in_registers_ = true;
  for (InstId id : stage.insts) EmitInst(id);
  totals_in_registers_ = false;
  out_.Close();
  for_each([&](InstId id) { out_.Line(StoreTotal(id, StrCat("t", id)), ";"); });
}

// At the end of each round of the loop over a shard's rows.
void KernelEmitter::EmitAccumulateFold() {
  std::vector<InstId> folded;
  for (InstId id : Accumulates()) {
    if (IsFoldedTotal(id)) folded.push_back(id);
  }
  if (folded.empty()) return;
  out_.Open("if (++rows_done == ", std::max<int64_t>(1, kChain / schedule_.row_batch), ")");
  out_.Line("rows_done = 0;");
  for (InstId id : folded) {
    const std::string type(ir::Name(inst(id).type));
    out_.Open("for (long n = 0; n < ", ColumnCount(), "; ++n)");
    if (schedule_.lane_outer) {
      out_.Line("d", id, "[n] += s1_to(t", id, "[n], vd);");
      out_.Line("t", id, "[n] = 0;");
    } else {
      out_.Line("d", id, "[n] += s1_get_", type, "(p", id, " + n);");
      out_.Line("s1_set_", type, "(p", id, " + n, 0);");
    }
    out_.Close();
  }
  out_.Close();
}

void KernelEmitter::FinishAccumulators() {
  for (InstId id : Accumulates()) {
    const Inst& from = inst(id);
    const std::string type(ir::Name(from.type));
    const Reg reg = RegOf(from.type);
    const std::string set = StrCat("s1_set_", type, "(");
    if (!InElement(id)) {
      const bool sum = from.op == Op::kSum && reg == Reg::kF32;
      std::string x = StrCat("t", id);
      if (schedule_.lane_outer) x = sum ? StrCat("s1_hsum_d(", x, ")") : HorizontalText(from.op, from.type, x);
      if (sum) x = "(float)" + x;
      out_.Line(set, "b", from.buffer, " + u, ", Narrowed(x, from.type, false), ");");
      continue;
    }
    if (IsDirectTotal(id) || (!schedule_.lane_outer && !IsFoldedTotal(id))) continue;
    out_.Open("for (long n = 0; n < ", ColumnCount(), "; ++n)");
    std::string x;
    if (!schedule_.lane_outer) {
      x = StrCat("(float)(d", id, "[n] + s1_get_", type, "(p", id, " + n))");
    } else if (IsFoldedTotal(id)) {
      x = StrCat("(float)s1_hsum_d(d", id, "[n] + s1_to(t", id, "[n], vd))");
    } else {
      x = HorizontalText(from.op, from.type, StrCat("t", id, "[n]"));
    }
    const std::string at =
        schedule_.lane_outer ? StrCat("b", from.buffer, " + u * ", ColumnCount(), " + n") : StrCat("p", id, " + n");
    out_.Line(set, at, ", ", Narrowed(x, from.type, false), ");");
    out_.Close();
  }
}

}  // namespace stepone::codegen
