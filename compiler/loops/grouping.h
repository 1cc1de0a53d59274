// The search: which items become one kernel.
#ifndef STEPONE_COMPILER_LOOPS_GROUPING_H_
#define STEPONE_COMPILER_LOOPS_GROUPING_H_

#include <cstdint>
#include <set>
#include <vector>

#include "compiler/loops/fusion_graph.h"
#include "compiler/loops/group.h"

namespace stepone::loops {

struct Grouping {
  std::vector<Group> groups;  // in an order that respects all data flow and effects
  std::vector<FusionDecision> decisions;
};

// Cuts the graph's items into groups and decides each reduction's role; adds the combine items that accumulated
// reductions need to `fusion`. Best pair first, by bytes saved. Nodes in `alone` stay groups of their own.
Grouping MakeGroups(FusionGraph& fusion, const FuseOptions& options, const std::set<ir::NodeId>& alone);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_GROUPING_H_
