// How a kernel is run: which dim's elements share a vector, what the loops are, and what one unit of work is.
#ifndef STEPONE_COMPILER_CODEGEN_SCHEDULE_H_
#define STEPONE_COMPILER_CODEGEN_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "compiler/codegen/cpu_codegen.h"
#include "compiler/loops/kernel.h"

namespace stepone::codegen {

// Every loop nest is  for unit: for row: for stage: for columns: for inner vector.  Splitting into units never changes
// results: sums are ordered by what is fixed here, and that depends on the kernel's shape only.
struct Schedule {
  enum class Form : uint8_t {
    kPointwise,  // every element by itself: units are blocks of rows and columns
    kRows,       // rows are independent: units are blocks of rows
    kShards,     // accumulates over rows: one unit per shard
    kOrdered,    // all rows in order: units are blocks of columns
  };
  Form form = Form::kPointwise;

  int64_t lanes = 8;
  int32_t lane_dim = 0;
  bool lane_outer = false;           // lanes are rows (of the lane dim), column loops are serial
  std::vector<int32_t> row_dims;     // slow to fast, without the lane dim
  std::vector<int32_t> column_dims;  // serial loops around the inner one, slow to fast
  int32_t inner_dim = -1;            // the innermost column loop; the lane dim unless lane_outer; -1: no columns
  std::vector<loops::Stage> stages;  // pointwise kernels: merged into one element stage

  int64_t rows = 1;          // product of row dims; times the number of lane groups if lane_outer
  int64_t row_block = 1;     // rows per unit (kPointwise, kRows)
  int64_t column_block = 0;  // inner elements per unit (kPointwise, kOrdered); a multiple of lanes, or all
  int64_t column_blocks = 1;
  int64_t row_batch = 1;  // rows that a shard runs through each stage together (kShards)

  int64_t units = 0;
  int64_t grain = 1;

  int64_t lane_size = 1;  // size of the lane dim
  int64_t lane_tail() const { return lane_size % lanes; }
  int64_t lane_groups() const { return (lane_size + lanes - 1) / lanes; }
};

Schedule MakeSchedule(const loops::Kernel& kernel, const CpuTarget& target);

// Rough cost of an instruction for one vector, in cycles.
double CyclesPerVector(const loops::Inst& inst);

}  // namespace stepone::codegen

#endif  // STEPONE_COMPILER_CODEGEN_SCHEDULE_H_
