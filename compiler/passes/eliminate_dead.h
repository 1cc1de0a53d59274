// Drops what nobody needs: nodes without uses, backwards, but for calls that draw random numbers or mutate.
#ifndef STEPONE_COMPILER_PASSES_ELIMINATE_DEAD_H_
#define STEPONE_COMPILER_PASSES_ELIMINATE_DEAD_H_

#include "absl/status/statusor.h"
#include "compiler/passes/pass.h"

namespace stepone::passes {

absl::StatusOr<bool> EliminateDead(ir::Graph& graph, const PassOptions& options);

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_ELIMINATE_DEAD_H_
