// One way to write each chain of views, casts and copies.
//
//     %1 = reshape %0 ; %2 = reshape %1      becomes     %2 = reshape %0
//     %1 = cast %0 : f32 ; %2 = cast %1 : bf16, where %0 is bf16        becomes     %0
//     %1 = copy %0, read by kernels only     becomes     %0
//
// Constants become the second operand of commutative ops.
#ifndef STEPONE_COMPILER_PASSES_CANONICALIZE_H_
#define STEPONE_COMPILER_PASSES_CANONICALIZE_H_

#include "absl/status/statusor.h"
#include "compiler/passes/pass.h"

namespace stepone::passes {

absl::StatusOr<bool> Canonicalize(ir::Graph& graph, const PassOptions& options);

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_CANONICALIZE_H_
