#include "compiler/passes/eliminate_dead.h"

namespace stepone::passes {

absl::StatusOr<bool> EliminateDead(ir::Graph& graph, const PassOptions& options) { return graph.RemoveDead(); }

}  // namespace stepone::passes
