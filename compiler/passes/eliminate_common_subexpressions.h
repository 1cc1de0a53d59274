// Computes the same thing once.
//
//     %1 = exp %0 ; %2 = exp %0 ; %3 = add %1, %2      becomes     %1 = exp %0 ; %3 = add %1, %1
//
// Not merged: calls, copies (their memory is the point), and two values that are both outputs: the caller may write
// into one of them.
#ifndef STEPONE_COMPILER_PASSES_ELIMINATE_COMMON_SUBEXPRESSIONS_H_
#define STEPONE_COMPILER_PASSES_ELIMINATE_COMMON_SUBEXPRESSIONS_H_

#include "absl/status/statusor.h"
#include "compiler/passes/pass.h"

namespace stepone::passes {

absl::StatusOr<bool> EliminateCommonSubexpressions(ir::Graph& graph, const PassOptions& options);

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_ELIMINATE_COMMON_SUBEXPRESSIONS_H_
