// One element of every pointwise op, plainly: shared by the graph's evaluator and the kernels' interpreter.
#ifndef STEPONE_TESTS_TESTLIB_SCALAR_OPS_H_
#define STEPONE_TESTS_TESTLIB_SCALAR_OPS_H_

#include <cstdint>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/types.h"

namespace stepone::testlib {

// `real` counts for float dtypes, `integer` for integers and bool.
struct Cell {
  double real = 0;
  int64_t integer = 0;
};

// `op` of elements of dtype `from` with a result of dtype `to`, rounded to it. False: integer division by zero.
bool EvaluateScalar(ir::Op op, ir::DType from, ir::DType to, const std::vector<Cell>& args, Cell* result);

// An element in memory.
Cell ReadCell(ir::DType dtype, const char* at);
void WriteCell(ir::DType dtype, const Cell& cell, char* at);

}  // namespace stepone::testlib

#endif  // STEPONE_TESTS_TESTLIB_SCALAR_OPS_H_
