// Writes one kernel's C function along a schedule.
//
// Variables in the text: b<n> buffers, i<d> index along dim d (of lane 0 for the lane dim), x<n> the value of
// instruction n, y<n> the same for each row of a batch, a<n>_<k> accumulator k of reduction n, d<n> its long-run total,
// t<n> running total over rows, p<n> a shard's slice, s<n> stash slots, u unit, r row.
#ifndef STEPONE_COMPILER_CODEGEN_KERNEL_EMITTER_H_
#define STEPONE_COMPILER_CODEGEN_KERNEL_EMITTER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/codegen/lane_index.h"
#include "compiler/codegen/pointwise_text.h"
#include "compiler/codegen/schedule.h"
#include "compiler/codegen/text_writer.h"
#include "compiler/loops/kernel.h"

namespace stepone::codegen {

// Not thread-safe; one call of Run per object.
class KernelEmitter {
 public:
  // Both must outlive the object.
  KernelEmitter(const loops::Kernel& kernel, const Schedule& schedule);

  // The function, without the helpers that it needs. kUnimplemented names what has no code.
  absl::StatusOr<std::string> Run(const std::string& symbol);

 private:
  using Inst = loops::Inst;
  using InstId = loops::InstId;

  // --- kernel_emitter.cc: units, rows, stages ---
  void AnalyseVariation();
  std::string Description() const;
  void EmitPointwiseUnit();
  void EmitRowsUnit();
  void EmitOrderedUnit();
  void EmitShardUnit();
  void UseColumnBlock(const std::string& block);
  void OpenRowLoop(const std::string& block);
  void EmitRowIndices(const std::string& row);  // i<d> of all row dims, and of the lane dim if it is an outer one
  void EmitLaneRow(const std::function<void()>& body);  // for a full lane group, or for the last one
  void EmitStages();
  void EmitBatchedStages();
  void EmitBatchRow(const loops::Stage& stage);
  void DeclareSlots();
  int64_t SlotLength() const;
  std::string SlotElement(int32_t slot) const;

  // --- emit_element_stage.cc: loops over columns, reductions ---
  void EmitElementStage(const loops::Stage& stage);
  void EmitInnerLoop(const loops::Stage& stage);
  void EmitLoop(const loops::Stage& stage, const std::string& begin, const std::string& end);
  void EmitInnerBody(const loops::Stage& stage);
  bool IsHoisted(InstId id) const;
  int ChooseCopies(const loops::Stage& stage) const;
  void DeclareReductions(const loops::Stage& stage);
  void EmitReduceStep(InstId id);
  std::string CombinedCopies(InstId id) const;
  void EmitFold(const loops::Stage& stage);
  void FinishReductions(const loops::Stage& stage);
  void FinishArgReduction(InstId id);
  bool NeedsFold(const loops::Stage& stage) const;
  bool IsFolded(const Inst& inst) const;
  loops::IndexExpr ColumnIndex() const;
  std::string ColumnPosition() const;

  // --- emit_accumulate.cc: totals over rows ---
  void DeclareAccumulators();
  void DeclareColumnTotals(InstId id);
  void DeclareLaneTotals(InstId id);
  void EmitAccumulateStep(InstId id);
  void EmitLaneStep(InstId id);
  void EmitAccumulateStage(const loops::Stage& stage);
  void EmitAccumulateVector(const loops::Stage& stage);
  void EmitAccumulateFold();
  void FinishAccumulators();
  std::string TotalPointer(InstId id, std::string* offsets) const;
  std::string LoadTotal(InstId id) const;
  std::string StoreTotal(InstId id, const std::string& x) const;
  bool IsFoldedTotal(InstId id) const;  // has a float64 total d<n> beside the running float32 one
  bool IsDirectTotal(InstId id) const;  // too many columns for totals in lanes
  std::vector<InstId> Accumulates() const;

  // --- emit_access.cc: instructions that touch memory or make indices ---
  struct Access {
    std::string pointer;    // to the element of lane 0
    std::string offsets;    // of the lanes; empty: contiguous
    bool far = false;       // offsets are a vl
    bool uniform = false;   // one element for all lanes
    std::string mask;       // lanes that count; empty: all, or the first n of a tail
    std::string condition;  // a single-valued guard; empty: none
  };
  Access MakeAccess(InstId id, bool vector);
  void AppendIndirect(InstId id, size_t term, const std::string& guard_mask, bool narrow, Access& access);
  void EmitLoad(InstId id, bool vector);
  void EmitStore(InstId id, bool vector);
  void EmitStoreAdd(InstId id, bool vector);
  void EmitIndex(InstId id, bool vector);
  void EmitInBounds(InstId id, bool vector);
  void EmitRandom(InstId id, bool vector);

  // --- kernel_emitter.cc: single instructions ---
  void EmitInst(InstId id);
  void Define(InstId id, bool vector, const std::string& expression);
  std::string ActiveMask() const;                                      // "" when all lanes count
  std::string Both(const std::string& a, const std::string& b) const;  // masks; "" is all
  void Fail(absl::Status status);

  const Inst& inst(InstId id) const { return kernel_.insts[id]; }
  bool Partial() const { return tail_ > 0; }
  bool InElement(InstId id) const;
  int64_t ColumnCount() const;

  const loops::Kernel& kernel_;
  const Schedule& schedule_;
  TextWriter out_;
  absl::Status status_;
  std::vector<Value> values_;       // by instruction, valid from its definition on
  std::vector<bool> varies_lane_;   // differs between lanes
  std::vector<bool> varies_inner_;  // differs between iterations of the innermost loop
  std::vector<bool> buffer_written_;
  std::vector<int32_t> stage_of_;  // index into schedule_.stages
  int64_t tail_ = 0;               // > 0: only so many lanes are active
  int copy_ = 0;                   // which copy of an unrolled body is being written
  int copies_ = 1;
  bool totals_in_registers_ = false;  // accumulates of this stage go to variables t<n>
  struct {
    std::string begin;           // of the innermost loop
    std::string end;             // of its whole vectors
    std::string tail_condition;  // whether this unit has the partial vector; empty: yes
    int64_t full = 0;            // elements in whole vectors
  } inner_;
};

// Neutral element of a reduction.
std::string Neutral(ir::Op op, ir::DType type);
// The combination of two values, as text on vectors.
std::string Combine(ir::Op op, ir::DType type, const std::string& a, const std::string& b);
// The lanes of a vector brought together, as text of a single value.
std::string HorizontalText(ir::Op op, ir::DType type, const std::string& x);

}  // namespace stepone::codegen

#endif  // STEPONE_COMPILER_CODEGEN_KERNEL_EMITTER_H_
