// A program for people: its steps, kernels and their source.
#ifndef STEPONE_COMPILER_TOOLS_PRINT_PROGRAM_H_
#define STEPONE_COMPILER_TOOLS_PRINT_PROGRAM_H_

#include <iosfwd>

#include "absl/status/status.h"
#include "compiler/codegen/cpu_codegen.h"
#include "compiler/ir/graph.h"
#include "compiler/loops/program.h"
#include "compiler/planning/plan_memory.h"

namespace stepone {

enum class ProgramDetail { kSteps, kKernels, kSource };

// Prints one line per step; after a launch also its kernel as text, or as C for `target`. Errors are those of codegen.
absl::Status PrintProgram(const ir::Graph& graph, const loops::Program& program, const planning::MemoryPlan& memory,
                          ProgramDetail detail, const codegen::CpuTarget& target, std::ostream& out);

}  // namespace stepone

#endif  // STEPONE_COMPILER_TOOLS_PRINT_PROGRAM_H_
