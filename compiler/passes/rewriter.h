// One walk over a graph in which nodes are simplified: what canonicalisation and folding share.
#ifndef STEPONE_COMPILER_PASSES_REWRITER_H_
#define STEPONE_COMPILER_PASSES_REWRITER_H_

#include <functional>

#include "compiler/ir/graph.h"

namespace stepone::passes {

// What became of a node.
struct Rewrite {
  bool changed = false;                   // the node was changed in place
  ir::ValueId stands_for = ir::kNoValue;  // this value, which is defined above, is what the node's only result is
};

// Visits primitives in order, with operands that are rewritten already; a node that changed is visited again.
//
// A result is replaced by `stands_for` only where nobody can notice: an output keeps memory of its own, and what an
// extern call or the caller reads keeps the layout of the traced program. Otherwise the node stays as it is.
// Returns whether anything changed. Nodes that nobody needs any more are left for eliminate_dead.
bool RewriteNodes(ir::Graph& graph, const std::function<Rewrite(ir::Graph&, ir::Node&)>& visit);

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_REWRITER_H_
