// Computes what is known now, and drops arithmetic that does nothing.
//
//     %1 = full {value=2.0} ; %2 = mul %1, %1      becomes     %2 = full {value=4.0}
//     %1 = full {value=1.0} ; %2 = mul %0, %1      becomes     %0
//     %1 = full ; %2 = expand %1                   becomes     %2 = full
//     %1 = iota {start=0} ; %2 = lt %1, 0          becomes     %2 = full {value=false}
//
// Only where the result has the same bits: x + 0.0 stays (it turns -0.0 into 0.0), and so does x * 0.0 (NaN). exp, log
// and the like are left to kernels, so that a constant and a variable give the same.
#ifndef STEPONE_COMPILER_PASSES_FOLD_CONSTANTS_H_
#define STEPONE_COMPILER_PASSES_FOLD_CONSTANTS_H_

#include "absl/status/statusor.h"
#include "compiler/passes/pass.h"

namespace stepone::passes {

absl::StatusOr<bool> FoldConstants(ir::Graph& graph, const PassOptions& options);

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_FOLD_CONSTANTS_H_
