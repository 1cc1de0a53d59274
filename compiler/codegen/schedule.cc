#include "compiler/codegen/schedule.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "compiler/codegen/lanes.h"

namespace stepone::codegen {
namespace {

using ir::Op;
using loops::Code;
using loops::Inst;
using loops::Kernel;
using loops::Stage;
using loops::Term;

constexpr double kNanosecondsPerCycle = 0.33;
constexpr double kNanosecondsPerByte = 0.04;  // some memory, some cache
constexpr double kUnitNanoseconds = 8e3;      // what a block of a pointwise kernel should take
constexpr double kGrainNanoseconds = 30e3;    // below this, handing work to a thread costs more than it brings

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool Has(const Kernel& kernel, std::initializer_list<Code> codes) {
  return std::any_of(kernel.insts.begin(), kernel.insts.end(),
                     [&](const Inst& inst) { return std::find(codes.begin(), codes.end(), inst.code) != codes.end(); });
}

// Nanoseconds of a whole kernel on one core.
double EstimateNanoseconds(const Kernel& kernel, const Schedule& schedule) {
  double elements = 1, rows = 1;
  for (size_t d = 0; d < kernel.dims.size(); ++d) {
    elements *= static_cast<double>(kernel.dims[d]);
    if (static_cast<int32_t>(d) < kernel.num_outer) rows *= static_cast<double>(kernel.dims[d]);
  }
  double total = 0;
  for (const Stage& stage : kernel.stages) {
    const double count = stage.element ? elements : rows;
    const double per_vector = stage.element || schedule.lane_outer ? static_cast<double>(schedule.lanes) : 1;
    for (loops::InstId id : stage.insts) {
      const Inst& inst = kernel.insts[id];
      total += count / per_vector * CyclesPerVector(inst) * kNanosecondsPerCycle;
      const bool memory = inst.code == Code::kLoad || inst.code == Code::kStore || inst.code == Code::kStoreAdd;
      if (memory) total += count * static_cast<double>(ir::ByteSize(inst.type)) * kNanosecondsPerByte;
    }
    total += count / per_vector * kNanosecondsPerCycle + rows * 3;
  }
  return total;
}

// The dim whose elements share a vector when the kernel names none.
int32_t LaneDim(const Kernel& kernel) {
  return kernel.vector_dim >= 0 ? kernel.vector_dim : static_cast<int32_t>(kernel.dims.size()) - 1;
}

void FinishPointwise(const Kernel& kernel, Schedule& schedule) {
  const double each = EstimateNanoseconds(kernel, schedule) /
                      static_cast<double>(schedule.rows * schedule.lane_size);  // nanoseconds per element
  const int64_t wanted = std::max<int64_t>(512, static_cast<int64_t>(kUnitNanoseconds / std::max(each, 1e-3)));
  int64_t block = 512;
  while (block * 2 <= wanted) block *= 2;
  if (schedule.lane_size >= 2 * block) {
    schedule.column_block = block;
    schedule.column_blocks = CeilDiv(schedule.lane_size, block);
  } else {
    schedule.row_block = std::clamp<int64_t>(block / schedule.lane_size, 1, schedule.rows);
  }
  schedule.units = CeilDiv(schedule.rows, schedule.row_block) * schedule.column_blocks;
}

// Whether two different columns can never meet in one element of a buffer that is added to.
bool ColumnsAreDisjoint(const Kernel& kernel, const Inst& add) {
  int64_t step = 0;  // everything that rows and indices add is a multiple of this
  for (const auto& term : add.indirect) step = std::gcd(step, std::abs(term.stride));
  int64_t reach = 0;
  std::vector<Term> columns;
  for (const Term& term : add.index.terms) {
    if (term.dim < kernel.num_outer) {
      step = std::gcd(step, std::abs(term.coefficient));
    } else if (term.divisor != 1 || term.modulus != 0 || term.coefficient < 0) {
      return false;
    } else {
      columns.push_back(term);
    }
  }
  std::sort(columns.begin(), columns.end(), [](const Term& a, const Term& b) { return a.coefficient < b.coefficient; });
  for (const Term& term : columns) {
    if (term.coefficient <= reach) return false;
    reach += term.coefficient * (kernel.dims[term.dim] - 1);
  }
  for (size_t d = kernel.num_outer; d < kernel.dims.size(); ++d) {
    const bool used = std::any_of(columns.begin(), columns.end(),
                                  [&](const Term& term) { return term.dim == static_cast<int32_t>(d); });
    if (!used && kernel.dims[d] > 1) return false;
  }
  return step == 0 || step > reach;
}

void FinishOrdered(const Kernel& kernel, Schedule& schedule) {
  schedule.units = 1;
  if (schedule.lane_outer) return;
  for (const Inst& inst : kernel.insts) {
    if (inst.code == Code::kStoreAdd && !ColumnsAreDisjoint(kernel, inst)) return;
  }
  // A cache line or more per unit and row, so that threads do not write to each other's lines.
  const int64_t block = std::max<int64_t>(64, schedule.lanes);
  schedule.column_block = std::min(schedule.lane_size, block);
  schedule.column_blocks = CeilDiv(schedule.lane_size, schedule.column_block);
  schedule.units = schedule.column_blocks;
}

void FinishShards(const Kernel& kernel, const CpuTarget& target, Schedule& schedule) {
  schedule.units = kernel.shards;
  if (schedule.lane_outer) return;
  int64_t row_bytes = 0;
  for (const Stage& stage : kernel.stages) {
    bool reduces = false, accumulates = false;
    for (loops::InstId id : stage.insts) {
      const Inst& inst = kernel.insts[id];
      reduces |= inst.code == Code::kReduce;
      accumulates |= inst.code == Code::kAccumulate && stage.element;
      const bool memory = inst.code == Code::kLoad || inst.code == Code::kStore || inst.code == Code::kUnstash;
      if (memory) row_bytes += 4;
    }
    if (reduces && accumulates) return;
  }
  for (size_t d = kernel.num_outer; d < kernel.dims.size(); ++d) row_bytes *= kernel.dims[d];
  // Stages before the last leave a batch of rows in the cache for the next ones.
  const int64_t most = kernel.stages.size() == 1 ? 8 : 4;
  const int64_t fits = kernel.stages.size() == 1 ? most : target.l2_bytes / 2 / std::max<int64_t>(row_bytes, 1);
  const int64_t rows_per_shard = CeilDiv(schedule.rows, std::max<int64_t>(kernel.shards, 1));
  schedule.row_batch = std::clamp<int64_t>(std::min(most, fits), 1, rows_per_shard);
}

}  // namespace

double CyclesPerVector(const Inst& inst) {
  const double width = IsWide(RegOf(inst.type)) ? 2 : 1;
  switch (inst.code) {
    case Code::kConstant:
      return 0;
    case Code::kLoad:
    case Code::kStore:
      return (inst.indirect.empty() && inst.guard < 0 ? 0.7 : 4) * width;
    case Code::kStoreAdd:
      return 4 * width;
    case Code::kRandom:
      return 18;
    case Code::kReduce:
    case Code::kAccumulate:
    case Code::kStash:
    case Code::kUnstash:
    case Code::kIndex:
    case Code::kInBounds:
      return 1.5 * width;
    case Code::kScalar:
      break;
  }
  switch (inst.op) {
    case Op::kExp:
      return 8 * width;
    case Op::kExpm1:
    case Op::kSigmoid:
      return 12 * width;
    case Op::kTanh:
    case Op::kErf:
      return 16 * width;
    case Op::kLog:
    case Op::kLog1p:
      return 12 * width;
    case Op::kSin:
    case Op::kCos:
      return 16 * width;
    case Op::kPow:
      return 50 * width;
    case Op::kDiv:
    case Op::kReciprocal:
    case Op::kSqrt:
      return 5 * width;
    case Op::kRsqrt:
      return 10 * width;
    case Op::kFloorDiv:
    case Op::kTruncDiv:
    case Op::kRemainder:
    case Op::kFmod:
      return 30 * width;
    default:
      return 0.6 * width;
  }
}

Schedule MakeSchedule(const Kernel& kernel, const CpuTarget& target) {
  using Form = Schedule::Form;
  Schedule schedule;
  schedule.lanes = std::clamp<int64_t>(target.vector_bytes / 4, 4, 16);
  schedule.lane_dim = LaneDim(kernel);
  schedule.lane_size = kernel.dims[schedule.lane_dim];
  schedule.stages = kernel.stages;
  const int32_t rank = static_cast<int32_t>(kernel.dims.size());

  int32_t num_outer = kernel.num_outer;
  schedule.form = kernel.ordered_rows                                          ? Form::kOrdered
                  : kernel.shards > 0                                          ? Form::kShards
                  : Has(kernel, {Code::kReduce, Code::kStash, Code::kUnstash}) ? Form::kRows
                                                                               : Form::kPointwise;
  if (schedule.form == Form::kPointwise) {
    num_outer = rank;
    Stage all;
    for (const Stage& stage : kernel.stages) all.insts.insert(all.insts.end(), stage.insts.begin(), stage.insts.end());
    schedule.stages = {all};
  }
  for (int32_t d = 0; d < rank; ++d) {
    if (d == schedule.lane_dim) continue;
    (d < num_outer ? schedule.row_dims : schedule.column_dims).push_back(d);
  }
  schedule.lane_outer = schedule.lane_dim < num_outer && schedule.form != Form::kPointwise;
  if (!schedule.lane_outer) {
    schedule.inner_dim = schedule.lane_dim;
  } else if (!schedule.column_dims.empty()) {
    schedule.inner_dim = schedule.column_dims.back();
    schedule.column_dims.pop_back();
  }
  for (int32_t d : schedule.row_dims) schedule.rows *= kernel.dims[d];
  if (schedule.lane_outer) schedule.rows *= schedule.lane_groups();
  schedule.column_block = schedule.lane_size;

  const double total = EstimateNanoseconds(kernel, schedule);
  switch (schedule.form) {
    case Form::kPointwise:
      FinishPointwise(kernel, schedule);
      break;
    case Form::kOrdered:
      FinishOrdered(kernel, schedule);
      break;
    case Form::kShards:
      FinishShards(kernel, target, schedule);
      break;
    case Form::kRows:
      schedule.row_block = std::clamp<int64_t>(
          static_cast<int64_t>(kUnitNanoseconds / 4 / std::max(total / static_cast<double>(schedule.rows), 1.0)), 1,
          schedule.rows);
      schedule.units = CeilDiv(schedule.rows, schedule.row_block);
      break;
  }
  const double unit = total / static_cast<double>(std::max<int64_t>(schedule.units, 1));
  schedule.grain = std::clamp<int64_t>(static_cast<int64_t>(kGrainNanoseconds / std::max(unit, 1.0)), 1,
                                       std::max<int64_t>(schedule.units, 1));
  return schedule;
}

}  // namespace stepone::codegen
