#include "compiler/codegen/kernel_emitter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_join.h"
#include "compiler/loops/index_expr.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

using loops::Code;
using loops::Stage;
using Form = Schedule::Form;

constexpr int64_t kMaxSlotBytes = 1 << 20;

}  // namespace

KernelEmitter::KernelEmitter(const loops::Kernel& kernel, const Schedule& schedule)
    : kernel_(kernel),
      schedule_(schedule),
      values_(kernel.insts.size()),
      varies_lane_(kernel.insts.size()),
      varies_inner_(kernel.insts.size()),
      buffer_written_(kernel.buffers.size()),
      stage_of_(kernel.insts.size(), -1) {
  for (size_t i = 0; i < kernel.buffers.size(); ++i) buffer_written_[i] = kernel.buffers[i].written;
  for (size_t s = 0; s < schedule.stages.size(); ++s) {
    for (InstId id : schedule.stages[s].insts) stage_of_[id] = static_cast<int32_t>(s);
  }
  inner_.begin = "0";
  const int64_t size = schedule.inner_dim < 0 ? 0 : kernel.dims[schedule.inner_dim];
  inner_.full = schedule.lane_outer ? size : size - schedule.lane_tail();
  inner_.end = StrCat(inner_.full);
  AnalyseVariation();
}

void KernelEmitter::AnalyseVariation() {
  const auto uses = [&](const Inst& from, int32_t dim) { return dim >= 0 && loops::DependsOn(from.index, dim); };
  for (const Stage& stage : schedule_.stages) {
    for (InstId id : stage.insts) {
      const Inst& from = inst(id);
      bool lane = uses(from, schedule_.lane_dim), inner = uses(from, schedule_.inner_dim);
      for (InstId arg : from.args) {
        lane = lane || varies_lane_[arg];
        inner = inner || (varies_inner_[arg] && stage_of_[arg] == stage_of_[id]);
      }
      if (from.code == Code::kUnstash) lane = inner = true;
      if (from.code == Code::kReduce) {
        lane = schedule_.lane_outer;
        inner = false;
      }
      varies_lane_[id] = lane;
      varies_inner_[id] = inner;
    }
  }
}

absl::StatusOr<std::string> KernelEmitter::Run(const std::string& symbol) {
  out_.Open("__attribute__((visibility(\"default\"))) int ", symbol,
            "(void* const* buffers, const long* sizes, long begin, long end)");
  for (size_t i = 0; i < kernel_.buffers.size(); ++i) {
    const loops::KernelBuffer& buffer = kernel_.buffers[i];
    const std::string type = StrCat(buffer.written ? "" : "const ", StorageType(buffer.dtype));
    out_.Line(type, "* const b", i, " = (", type, "*)buffers[", i, "];");
  }
  DeclareSlots();
  out_.Open("for (long u = begin; u < end; ++u)");
  switch (schedule_.form) {
    case Form::kPointwise:
      EmitPointwiseUnit();
      break;
    case Form::kRows:
      EmitRowsUnit();
      break;
    case Form::kOrdered:
      EmitOrderedUnit();
      break;
    case Form::kShards:
      EmitShardUnit();
      break;
  }
  out_.Close();
  out_.Line("return 0;");
  out_.Close();
  if (!status_.ok()) return status_;
  return Description() + out_.Take();
}

// For people who read the text. Holds nothing that the kernel's canonical bytes don't.
std::string KernelEmitter::Description() const {
  static constexpr const char* kForms[] = {
      "pointwise: units are blocks of rows and columns", "independent rows: units are blocks of rows",
      "sums over rows: one unit per shard", "ordered rows: units are blocks of columns"};
  return StrCat("// dims [", absl::StrJoin(kernel_.dims, ", "), "], ", kernel_.num_outer, " outer; lanes along dim ",
                schedule_.lane_dim, "\n// ", kForms[static_cast<int>(schedule_.form)], "; ", schedule_.units,
                " units of ", schedule_.row_block, " rows, ", schedule_.column_block, " columns\n");
}

void KernelEmitter::DeclareSlots() {
  int64_t bytes = 0;
  for (size_t i = 0; i < kernel_.slots.size(); ++i) {
    const Reg reg = RegOf(kernel_.slots[i]);
    const int64_t item = IsWide(reg) ? 8 : 4;
    std::string size;
    if (schedule_.lane_outer) {
      size = StrCat("[", ColumnCount(), "]");
      bytes += ColumnCount() * schedule_.lanes * item;
    } else {
      size = StrCat("[", schedule_.row_batch, "][", SlotLength(), "]");
      bytes += schedule_.row_batch * SlotLength() * item;
    }
    out_.Line("_Alignas(64) ", schedule_.lane_outer ? VectorType(reg) : ScalarType(reg), " s", i, size, ";");
  }
  if (bytes > kMaxSlotBytes) Fail(absl::UnimplementedError(StrCat("rows kept between stages take ", bytes, " bytes")));
}

int64_t KernelEmitter::ColumnCount() const {
  int64_t count = 1;
  for (size_t d = kernel_.num_outer; d < kernel_.dims.size(); ++d) count *= kernel_.dims[d];
  return count;
}

int64_t KernelEmitter::SlotLength() const {
  return ColumnCount() / schedule_.lane_size * schedule_.lane_groups() * schedule_.lanes;
}

void KernelEmitter::EmitPointwiseUnit() {
  if (schedule_.column_blocks > 1) UseColumnBlock(StrCat("u % ", schedule_.column_blocks));
  const std::string block = schedule_.column_blocks > 1 ? StrCat("u / ", schedule_.column_blocks) : "u";
  OpenRowLoop(block);
  EmitRowIndices("r");
  EmitElementStage(schedule_.stages[0]);
  out_.Close();
}

// The innermost loop runs over one block of columns.
void KernelEmitter::UseColumnBlock(const std::string& block) {
  const int64_t size = schedule_.column_block;
  out_.Line("const long c = ", block, " * ", size, ";");
  out_.Line("const long c_end = c + ", size, " < ", inner_.full, " ? c + ", size, " : ", inner_.full, ";");
  inner_.begin = "c";
  inner_.end = "c_end";
  inner_.tail_condition = StrCat("c + ", size, " >= ", schedule_.lane_size);
}

// Rows [block * row_block, ...) of a unit. Opens one brace.
void KernelEmitter::OpenRowLoop(const std::string& block) {
  if (schedule_.rows == 1) return out_.Open("");
  if (schedule_.row_block == 1) {
    out_.Open("");
    return out_.Line("const long r = ", block, ";");
  }
  out_.Line("const long r_begin = ", block, " * ", schedule_.row_block, ";");
  out_.Line("const long r_end = r_begin + ", schedule_.row_block, " < ", schedule_.rows, " ? r_begin + ",
            schedule_.row_block, " : ", schedule_.rows, ";");
  out_.Open("for (long r = r_begin; r < r_end; ++r)");
}

void KernelEmitter::EmitRowsUnit() {
  OpenRowLoop("u");
  EmitRowIndices("r");
  EmitLaneRow([&] { EmitStages(); });
  out_.Close();
}

void KernelEmitter::EmitOrderedUnit() {
  if (schedule_.column_blocks > 1) UseColumnBlock("u");
  out_.Open("for (long r = 0; r < ", schedule_.rows, "; ++r)");
  EmitRowIndices("r");
  EmitLaneRow([&] { EmitStages(); });
  out_.Close();
}

void KernelEmitter::EmitShardUnit() {
  out_.Line("const long r_begin = u * ", schedule_.rows, " / ", kernel_.shards, ", r_end = (u + 1) * ", schedule_.rows,
            " / ", kernel_.shards, ";");
  DeclareAccumulators();
  if (schedule_.row_batch > 1) {
    out_.Open("for (long r = r_begin; r < r_end; r += ", schedule_.row_batch, ")");
    out_.Line("const long batch = r_end - r < ", schedule_.row_batch, " ? r_end - r : ", schedule_.row_batch, ";");
    EmitBatchedStages();
  } else {
    out_.Open("for (long r = r_begin; r < r_end; ++r)");
    EmitRowIndices("r");
    EmitLaneRow([&] { EmitStages(); });
  }
  EmitAccumulateFold();
  out_.Close();
  FinishAccumulators();
}

void KernelEmitter::EmitRowIndices(const std::string& row) {
  int64_t below = 1;
  if (schedule_.lane_outer) {
    const int64_t groups = schedule_.lane_groups();
    const std::string group = groups == 1 ? "0" : schedule_.rows == groups ? row : StrCat(row, " % ", groups);
    out_.Line("const long i", schedule_.lane_dim, " = ", group, groups == 1 ? "" : StrCat(" * ", schedule_.lanes), ";");
    below = groups;
  }
  std::vector<std::string> lines;
  for (size_t n = schedule_.row_dims.size(); n-- > 0;) {
    const int32_t d = schedule_.row_dims[n];
    const int64_t size = kernel_.dims[d];
    std::string text = size == 1 ? "0" : row;
    if (size != 1 && below != 1) text += StrCat(" / ", below);
    if (size != 1 && below * size != schedule_.rows) text += StrCat(" % ", size);
    lines.push_back(StrCat("const long i", d, " = ", text, ";"));
    below *= size;
  }
  for (size_t n = lines.size(); n-- > 0;) out_.Line(lines[n]);
}

void KernelEmitter::EmitLaneRow(const std::function<void()>& body) {
  const int64_t tail = schedule_.lane_outer ? schedule_.lane_tail() : 0;
  if (tail == 0) return body();
  const int64_t full = schedule_.lane_size - tail;
  if (full > 0) {
    out_.Open("if (i", schedule_.lane_dim, " < ", full, ")");
    body();
    out_.CloseAndOpen("else");
  } else {
    out_.Open("");
  }
  tail_ = tail;
  body();
  tail_ = 0;
  out_.Close();
}

void KernelEmitter::EmitStages() {
  for (const Stage& stage : schedule_.stages) {
    if (stage.element) {
      EmitElementStage(stage);
    } else {
      for (InstId id : stage.insts) EmitInst(id);
    }
  }
}

// Each stage for all rows of the batch before the next stage. What a later stage uses of a row is kept in arrays.
void KernelEmitter::EmitBatchedStages() {
  std::vector<bool> crosses(kernel_.insts.size());
  for (const Stage& stage : schedule_.stages) {
    for (InstId id : stage.insts) {
      for (InstId arg : inst(id).args) crosses[arg] = crosses[arg] || stage_of_[arg] != stage_of_[id];
    }
  }
  for (size_t id = 0; id < crosses.size(); ++id) {
    if (!crosses[id] || inst(static_cast<InstId>(id)).code == Code::kConstant) continue;
    out_.Line(ScalarType(RegOf(kernel_.insts[id].type)), " y", id, "[", schedule_.row_batch, "];");
  }
  for (const Stage& stage : schedule_.stages) {
    const bool accumulates = stage.element && std::any_of(stage.insts.begin(), stage.insts.end(), [&](InstId id) {
                               return inst(id).code == Code::kAccumulate;
                             });
    if (accumulates) {
      EmitAccumulateStage(stage);
      continue;
    }
    out_.Open("for (long k = 0; k < batch; ++k)");
    EmitBatchRow(stage);
    if (stage.element) {
      EmitElementStage(stage);
    } else {
      for (InstId id : stage.insts) EmitInst(id);
    }
    for (InstId id : stage.insts) {
      if (crosses[id] && inst(id).code != Code::kConstant) out_.Line("y", id, "[k] = ", values_[id].text, ";");
    }
    out_.Close();
  }
}

// Indices and row values of row k of a batch.
void KernelEmitter::EmitBatchRow(const Stage& stage) {
  const bool one_dim = schedule_.row_dims.size() == 1;
  if (!one_dim) out_.Line("const long q = r + k;");
  EmitRowIndices(one_dim ? "(r + k)" : "q");
  std::vector<InstId> used;
  for (InstId id : stage.insts) {
    for (InstId arg : inst(id).args) {
      if (stage_of_[arg] != stage_of_[id] && inst(arg).code != Code::kConstant) used.push_back(arg);
    }
  }
  std::sort(used.begin(), used.end());
  used.erase(std::unique(used.begin(), used.end()), used.end());
  for (InstId id : used) {
    out_.Line("const ", ScalarType(RegOf(inst(id).type)), " x", id, " = y", id, "[k];");
    values_[id].text = StrCat("x", id);
  }
}

void KernelEmitter::Define(InstId id, bool vector, const std::string& expression) {
  const Reg reg = RegOf(inst(id).type);
  out_.Line("const ", vector ? VectorType(reg) : ScalarType(reg), " x", id, " = ", expression, ";");
  values_[id] = {StrCat("x", id), inst(id).type, vector, nullptr};
}

void KernelEmitter::EmitInst(InstId id) {
  const Inst& from = inst(id);
  const bool vector = varies_lane_[id];
  switch (from.code) {
    case Code::kConstant:
      values_[id] = {Literal(from), from.type, false, &from};
      return;
    case Code::kIndex:
      return EmitIndex(id, vector);
    case Code::kInBounds:
      return EmitInBounds(id, vector);
    case Code::kLoad:
      return EmitLoad(id, vector);
    case Code::kStore:
      return EmitStore(id, vector);
    case Code::kStoreAdd:
      return EmitStoreAdd(id, vector || (!schedule_.lane_outer && InElement(id)));
    case Code::kRandom:
      return EmitRandom(id, vector);
    case Code::kReduce:
      return EmitReduceStep(id);
    case Code::kAccumulate:
      return EmitAccumulateStep(id);
    case Code::kStash: {
      const std::string at = SlotElement(from.slot);
      out_.Line(at, " = ", AsVector(values_[from.args[0]]), ";");
      return;
    }
    case Code::kUnstash:
      return Define(id, true, SlotElement(from.slot));
    case Code::kScalar:
      break;
  }
  std::vector<Value> args;
  for (InstId arg : from.args) args.push_back(values_[arg]);
  absl::StatusOr<std::string> text = PointwiseText(from, args, vector, vector ? ActiveMask() : "", out_);
  if (!text.ok()) return Fail(text.status());
  Define(id, vector, *text);
}

bool KernelEmitter::InElement(InstId id) const { return schedule_.stages[stage_of_[id]].element; }

// A stash slot at the current column, as something that can be read and written.
std::string KernelEmitter::SlotElement(int32_t slot) const {
  const Reg reg = RegOf(kernel_.slots[slot]);
  if (schedule_.lane_outer) return StrCat("s", slot, "[", ColumnPosition(), "]");
  // The lane dim is made the fastest, so that vectors lie in one piece.
  std::string at;
  int64_t below = schedule_.lane_groups() * schedule_.lanes;
  for (size_t n = schedule_.column_dims.size(); n-- > 0;) {
    at += StrCat("i", schedule_.column_dims[n], " * ", below, " + ");
    below *= kernel_.dims[schedule_.column_dims[n]];
  }
  at += StrCat("i", schedule_.lane_dim);
  return StrCat("*(", VectorType(reg), "*)(s", slot, "[", schedule_.row_batch > 1 ? "k" : "0", "] + ", at, ")");
}

std::string KernelEmitter::ActiveMask() const { return Partial() ? StrCat("s1_lanes(", tail_, ")") : ""; }

std::string KernelEmitter::Both(const std::string& a, const std::string& b) const {
  if (a.empty() || b.empty()) return a + b;
  return StrCat(a, " & ", b);
}

void KernelEmitter::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

}  // namespace stepone::codegen
