// A group's computation as expressions over its atoms, before it is given loops and stages.
#ifndef STEPONE_COMPILER_LOOPS_EXPR_GRAPH_H_
#define STEPONE_COMPILER_LOOPS_EXPR_GRAPH_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "compiler/ir/scalar.h"
#include "compiler/loops/kernel.h"
#include "compiler/loops/program.h"

namespace stepone::loops {

using ExprId = int32_t;
inline constexpr ExprId kNoExpr = -1;

// Expressions are instructions whose args are expression ids and whose index terms speak of atoms. Equal ones are made
// once. Not thread-safe.
class ExprGraph {
 public:
  ExprId Add(Inst inst);
  ExprId Scalar(ir::Op op, ir::DType type, std::vector<ExprId> args);
  ExprId Constant(ir::DType type, const ir::Scalar& value);
  const Inst& at(ExprId id) const { return exprs_[id]; }
  Inst& at(ExprId id) { return exprs_[id]; }
  int32_t size() const { return static_cast<int32_t>(exprs_.size()); }

  // What the kernel is for: stores, accumulates; in order, not shared.
  std::vector<Inst> roots;
  // The kernel's arguments; Inst::buffer counts in these.
  std::vector<BufferId> buffers;
  int32_t BufferIndex(BufferId buffer);

 private:
  std::vector<Inst> exprs_;
  std::unordered_multimap<uint64_t, ExprId> by_hash_;
};

// The loops of a group: which atoms are columns, and what else the kernel's shape depends on.
struct NestRequest {
  ir::Dims atoms;
  uint64_t columns = 0;
  bool columns_fixed = false;      // columns are what the group's reductions say; else they are chosen here
  bool keep_column_order = false;  // positions in the columns are results
  bool reduces_all = false;        // holds reductions over all atoms: rows and columns may be chosen freely
  bool ordered_rows = false;
};

// The kernel, and the positions of atoms in the partial buffers' columns.
struct Scheduled {
  Kernel kernel;
  std::vector<int64_t> column_strides;  // per atom; 0 for row atoms
};

// Orders dims by memory, merges those that run together, and puts expressions into stages. Fills in everything of the
// kernel but name and sources. `extents` and `dtypes` per buffer of `exprs`.
Scheduled Schedule(ExprGraph exprs, const NestRequest& request, const std::vector<int64_t>& extents,
                   const std::vector<ir::DType>& dtypes, const FuseOptions& options);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_EXPR_GRAPH_H_
