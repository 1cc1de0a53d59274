// Writes calls of ATen ops in primitives.
//
//     %2 = aten.silu.default(self=%0) : f32[8]     becomes     %1 = neg %0 ; %2 = exp %1 ; ... ; %6 = div %0, %5
//
// What has no rule stays a call: products of matrices, convolutions, pooling, sorting, scans, anything on complex
// numbers or on values that are no plain tensors, anything unknown. Calls whose results have no element become
// constants.
#ifndef STEPONE_COMPILER_PASSES_DECOMPOSE_H_
#define STEPONE_COMPILER_PASSES_DECOMPOSE_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/passes/pass.h"

namespace stepone::passes {

// kInvalidArgument naming the node when a call's arguments or result types contradict the op.
absl::StatusOr<bool> Decompose(ir::Graph& graph, const PassOptions& options);

// Whether some call of `op` ("aten.add.Tensor") is decomposed.
bool HasDecomposition(std::string_view op);

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_DECOMPOSE_H_
