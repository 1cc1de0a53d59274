// A slow and plain interpreter of decomposed graphs: what lowering and code generation are compared with.
#ifndef STEPONE_TESTS_TESTLIB_EVALUATOR_H_
#define STEPONE_TESTS_TESTLIB_EVALUATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"

namespace stepone::testlib {

// A tensor's elements in row-major order. Float dtypes are held in `reals`, rounded to the dtype; integers and bool in
// `integers`.
struct Tensor {
  ir::DType dtype = ir::DType::kFloat32;
  ir::Dims sizes;
  std::vector<double> reals;
  std::vector<int64_t> integers;

  int64_t NumElements() const;
};

// Rounds `values` to `dtype`. REQUIRES: dtype is fusable, as many values as the sizes say.
Tensor MakeTensor(ir::DType dtype, ir::Dims sizes, const std::vector<double>& values);

// `value` as it is after being stored as `dtype` (a float dtype), half to even.
double RoundTo(ir::DType dtype, double value);

// The bytes that the tensor has in memory under `strides` (elements that no index reaches are 0), and back.
std::string ToBytes(const Tensor& tensor, const ir::Dims& strides);
Tensor FromBytes(ir::DType dtype, const ir::Dims& sizes, const ir::Dims& strides, const char* data);

// The kernels' generator: f32 in [0, 1) of (seed, stream, row-major position). Codegen's kernels give the same bits.
float RandomUniform(int64_t seed, int64_t stream, int64_t position);

// Values of the graph's outputs (outputs that are numbers or nothing give an empty tensor). Every op rounds its result
// to its dtype; float32 arithmetic is done in double and rounded once, sums in double and rounded at the end. `inputs`:
// one per graph input, in order; those that are numbers are ignored. `seed` is what kSeed draws. kOutOfRange: an index
// lies outside of its dimension. kFailedPrecondition: integer division by zero. kUnimplemented: the graph has an extern
// call. kInvalidArgument: inputs do not fit.
absl::StatusOr<std::vector<Tensor>> Evaluate(const ir::Graph& graph, const std::vector<Tensor>& inputs,
                                             int64_t seed = 0);

}  // namespace stepone::testlib

#endif  // STEPONE_TESTS_TESTLIB_EVALUATOR_H_
