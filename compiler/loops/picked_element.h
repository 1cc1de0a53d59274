// Sums over one-hot rows: labels in a cross-entropy's gradient.
#ifndef STEPONE_COMPILER_LOOPS_PICKED_ELEMENT_H_
#define STEPONE_COMPILER_LOOPS_PICKED_ELEMENT_H_

#include <cstdint>

#include "compiler/loops/expr_graph.h"

namespace stepone::loops {

// The sum over a row's columns of where(column == row value and ..., row value, 0) is one of the elements or 0: the row
// value that gives it. kNoExpr: `value` is no such expression. `columns`: the atoms that are columns, as bits.
ExprId PickedElement(ExprGraph& exprs, ExprId value, uint64_t columns, const ir::Dims& atoms);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_PICKED_ELEMENT_H_
