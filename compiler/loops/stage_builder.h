// Expressions over final dims as stages of straight-line instructions.
#ifndef STEPONE_COMPILER_LOOPS_STAGE_BUILDER_H_
#define STEPONE_COMPILER_LOOPS_STAGE_BUILDER_H_

#include <cstdint>

#include "compiler/loops/expr_graph.h"
#include "compiler/loops/kernel.h"

namespace stepone::loops {

// Fills in kernel.insts, kernel.stages and kernel.slots. REQUIRES: kernel.dims and num_outer are final and the
// expressions' indices speak of them. An element value that a later stage needs again is computed again, or stashed
// when that costs more and a slot of the row takes at most `slot_bytes`; all slots together take at most twice that.
void BuildStages(const ExprGraph& exprs, int64_t slot_bytes, Kernel& kernel);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_STAGE_BUILDER_H_
