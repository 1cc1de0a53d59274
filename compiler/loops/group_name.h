// Short names for groups and kernels, for people.
#ifndef STEPONE_COMPILER_LOOPS_GROUP_NAME_H_
#define STEPONE_COMPILER_LOOPS_GROUP_NAME_H_

#include <string>

#include "compiler/loops/fusion_graph.h"
#include "compiler/loops/group.h"

namespace stepone::loops {

// From the ops, at most 60 characters of [a-z0-9_]: "softmax_dropout", "norm_add", "gelu_column_sum".
std::string GroupName(const FusionGraph& fusion, const Group& group);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_GROUP_NAME_H_
