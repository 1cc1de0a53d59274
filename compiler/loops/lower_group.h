// One group as kernels over buffers.
#ifndef STEPONE_COMPILER_LOOPS_LOWER_GROUP_H_
#define STEPONE_COMPILER_LOOPS_LOWER_GROUP_H_

#include <vector>

#include "compiler/loops/buffer_table.h"
#include "compiler/loops/fusion_graph.h"
#include "compiler/loops/group.h"
#include "compiler/loops/program.h"

namespace stepone::loops {

// Why a group could not be lowered.
struct LowerFailure {
  bool failed = false;
  // A view's operand that no index expression reaches: a copy of it in memory helps. kNoValue: the group must be taken
  // apart.
  ir::ValueId copy = ir::kNoValue;
};

// Appends the group's launches to `steps`. `stored[value]`: the base values that must be in memory afterwards.
// REQUIRES: !group.opaque.
LowerFailure LowerGroup(const FusionGraph& fusion, const Group& group, const std::vector<bool>& stored,
                        const FuseOptions& options, BufferTable& buffers, std::vector<Step>& steps);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_LOWER_GROUP_H_
