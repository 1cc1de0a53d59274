// A planned and built program as an artifact: the manifest that a client executes, and its objects.
#ifndef STEPONE_COMPILER_PACKAGE_H_
#define STEPONE_COMPILER_PACKAGE_H_

#include "compiler/compile.h"
#include "compiler/ir/graph.h"
#include "compiler/kernel_builder.h"
#include "compiler/loops/program.h"
#include "compiler/planning/plan_memory.h"

namespace stepone::compiler {

// Fills in everything of the manifest but key, fingerprint, target, options and the report. Objects that several
// kernels share appear once.
CompileResult Package(const ir::Graph& graph, const loops::Program& program, const planning::MemoryPlan& memory,
                      const BuiltKernels& kernels);

}  // namespace stepone::compiler

#endif  // STEPONE_COMPILER_PACKAGE_H_
