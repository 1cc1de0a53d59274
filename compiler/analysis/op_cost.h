// What one element of an op costs: for fusion's choice between computing again and storing, and for reports.
#ifndef STEPONE_COMPILER_ANALYSIS_OP_COST_H_
#define STEPONE_COMPILER_ANALYSIS_OP_COST_H_

#include <cstdint>

#include "compiler/ir/graph.h"

namespace stepone::analysis {

// Takes so long per element (exp, log, division, a random number ...) that computing it twice costs more than a load
// and a store.
bool IsExpensive(ir::Op op);

// Floating-point operations per result element (per operand element for reductions), as reports count them: a
// polynomial function counts its multiplications and additions.
int64_t FlopsPerElement(ir::Op op);

// The node's flops; 0 for extern calls, whose insides are not ours to count.
int64_t Flops(const ir::Graph& graph, const ir::Node& node);

}  // namespace stepone::analysis

#endif  // STEPONE_COMPILER_ANALYSIS_OP_COST_H_
