// A number that changes when a graph does.
#ifndef STEPONE_COMPILER_IR_STRUCTURAL_HASH_H_
#define STEPONE_COMPILER_IR_STRUCTURAL_HASH_H_

#include <cstdint>

#include "compiler/ir/graph.h"

namespace stepone::ir {

// Of all that Print() shows but names: equal for graphs that differ only in ids and in nodes that were dropped. Stable
// within a process, for comparing a graph before and after a pass; not for keys.
uint64_t StructuralHash(const Graph& graph);

}  // namespace stepone::ir

#endif  // STEPONE_COMPILER_IR_STRUCTURAL_HASH_H_
