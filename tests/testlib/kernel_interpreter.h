// Runs kernels and programs scalar by scalar: what generated code and fusion are compared with.
#ifndef STEPONE_TESTS_TESTLIB_KERNEL_INTERPRETER_H_
#define STEPONE_TESTS_TESTLIB_KERNEL_INTERPRETER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"
#include "compiler/loops/kernel.h"
#include "compiler/loops/program.h"
#include "compiler/planning/plan_memory.h"
#include "tests/testlib/evaluator.h"

namespace stepone::testlib {

// Computes a whole launch. `buffers`: one per kernel buffer, each of at least `extent` elements as they lie in memory,
// little-endian; two may be the same memory where planning::MayWriteInPlace allows it. Every instruction rounds to its
// dtype; float32 arithmetic is done in double and rounded once; sums are kept in double and rounded where a kernel's
// reduce or accumulate ends. kOutOfRange: an index read from a tensor leaves its dimension. kFailedPrecondition:
// integer division by zero. kInternal: the kernel does not pass loops::Verify, or leaves a buffer.
absl::Status RunKernel(const loops::Kernel& kernel, const std::vector<std::span<char>>& buffers);

// Runs a program made from `graph`. `inputs`, `seed` and the result as for Evaluate. kUnimplemented: it has an extern
// call. Temporaries start as 0xee bytes, so that what nobody wrote shows. `plan`: temporaries that it has in the arena
// share that memory as it says; without one each has its own.
absl::StatusOr<std::vector<Tensor>> RunProgram(const ir::Graph& graph, const loops::Program& program,
                                               const std::vector<Tensor>& inputs, int64_t seed = 0,
                                               const planning::MemoryPlan* plan = nullptr);

}  // namespace stepone::testlib

#endif  // STEPONE_TESTS_TESTLIB_KERNEL_INTERPRETER_H_
