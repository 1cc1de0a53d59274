// From the wire's graph to the compiler's.
#ifndef STEPONE_COMPILER_IMPORT_IMPORT_GRAPH_H_
#define STEPONE_COMPILER_IMPORT_IMPORT_GRAPH_H_

#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"
#include "stepone/v1/graph.pb.h"

namespace stepone::import {

// Every call of the request becomes a kAten node; host values that are numbers become arguments, input numbers and
// output numbers. The result passes ir::Verify(graph, Stage::kImported).
//
// Errors: kInvalidArgument naming the node (or "input 3", "output 0") and the rule that the request breaks:
// value-index, def-before-use, cycle, redefined, unused-value, type, argument, op-name, results, aliases, constant,
// output; kUnimplemented for sizes, strides or numbers that are expressions of symbols (the graph must be specialised
// first).
absl::StatusOr<ir::Graph> ImportGraph(const v1::Graph& request);

}  // namespace stepone::import

#endif  // STEPONE_COMPILER_IMPORT_IMPORT_GRAPH_H_
