// Makes a decomposed graph ready for fusion: everything that must be in memory can be had as strides of some buffer.
#ifndef STEPONE_COMPILER_LOOPS_NORMALIZE_H_
#define STEPONE_COMPILER_LOOPS_NORMALIZE_H_

#include <set>
#include <vector>

#include "compiler/ir/graph.h"

namespace stepone::loops {

// A copy of `graph` in which
//  * operands of extern calls and outputs are strides of their base with the traced strides, by copies where need be,
//  * so are tables that are read at computed positions, and operands of reshapes that no index expression can follow,
//  * so are the operands of views that are in `copied`,
//  * a reduction of nothing is a constant, one of a single element a view.
// Nodes and values that were there keep their ids. `pinned` gets the copies that must stay copies.
ir::Graph Normalize(const ir::Graph& graph, const std::set<ir::ValueId>& copied, std::vector<ir::ValueId>* pinned);

// Whether positions of one shape can be written as positions of the other after cutting dims evenly.
bool CanNest(const ir::Dims& from, const ir::Dims& to);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_NORMALIZE_H_
