// Tensors of the test library: making them, and their bytes in memory.
#include <algorithm>
#include <utility>

#include "compiler/codegen/random.h"
#include "compiler/ir/scalar.h"
#include "tests/testlib/evaluator.h"
#include "tests/testlib/scalar_ops.h"

namespace stepone::testlib {
namespace {

// Calls visit(row-major position, place) for each element.
template <typename F>
void ForEachElement(const ir::Dims& sizes, const ir::Dims& strides, F visit) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  for (int64_t position = 0; position < count; ++position) {
    int64_t rest = position, place = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      place += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    visit(position, place);
  }
}

}  // namespace

int64_t Tensor::NumElements() const {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

double RoundTo(ir::DType dtype, double value) { return ir::RoundTo(dtype, value); }

float RandomUniform(int64_t seed, int64_t stream, int64_t position) {
  return codegen::RandomUniform(seed, stream, position);
}

Tensor MakeTensor(ir::DType dtype, ir::Dims sizes, const std::vector<double>& values) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.sizes = std::move(sizes);
  for (double value : values) {
    if (ir::IsFloat(dtype)) {
      tensor.reals.push_back(ir::RoundTo(dtype, value));
    } else {
      tensor.integers.push_back(ir::WrapTo(dtype, ir::ToInt64(ir::Scalar(value))));
    }
  }
  return tensor;
}

std::string ToBytes(const Tensor& tensor, const ir::Dims& strides) {
  const int64_t bytes = ir::ByteSize(tensor.dtype);
  int64_t extent = 0;
  ForEachElement(tensor.sizes, strides, [&](int64_t, int64_t place) { extent = std::max(extent, place + 1); });
  std::string data(static_cast<size_t>(extent * bytes), '\0');
  const bool real = ir::IsFloat(tensor.dtype);
  ForEachElement(tensor.sizes, strides, [&](int64_t position, int64_t place) {
    const Cell cell = real ? Cell{tensor.reals[position], 0} : Cell{0, tensor.integers[position]};
    WriteCell(tensor.dtype, cell, data.data() + place * bytes);
  });
  return data;
}

Tensor FromBytes(ir::DType dtype, const ir::Dims& sizes, const ir::Dims& strides, const char* data) {
  Tensor tensor;
  tensor.dtype = dtype;
  tensor.sizes = sizes;
  ForEachElement(sizes, strides, [&](int64_t, int64_t place) {
    const Cell cell = ReadCell(dtype, data + place * ir::ByteSize(dtype));
    if (ir::IsFloat(dtype)) {
      tensor.reals.push_back(cell.real);
    } else {
      tensor.integers.push_back(cell.integer);
    }
  });
  return tensor;
}

}  // namespace stepone::testlib
