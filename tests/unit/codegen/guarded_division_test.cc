// Integer division in lanes that do not count: where a guard is false, and behind the end of a row. It must neither
// trap there nor report a division by zero, which it must still do where a lane counts.
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "gtest/gtest.h"
#include "proto/kernel_abi.h"
#include "tests/unit/codegen/kernel_maker.h"
#include "tests/unit/codegen/kernel_runner.h"

namespace stepone::codegen {
namespace {

using ir::DType;
using ir::Op;
using loops::Code;

constexpr Op kDivisions[] = {Op::kFloorDiv, Op::kTruncDiv, Op::kRemainder, Op::kFmod};

// No zero, but the smallest number, and -1 to divide it by.
template <typename T>
std::string NonZero(int64_t count, int64_t start) {
  constexpr T kValues[] = {std::numeric_limits<T>::min(),
                           static_cast<T>(-1),
                           3,
                           std::numeric_limits<T>::min(),
                           static_cast<T>(-7),
                           std::numeric_limits<T>::max(),
                           1};
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) {
    const T value = kValues[(i + start) % 7];
    values.push_back(value == 0 ? T{5} : value);
  }
  return Bytes(values);
}

std::string NonZero(DType type, int64_t count, int64_t start) {
  return type == DType::kInt64   ? NonZero<int64_t>(count, start)
         : type == DType::kInt32 ? NonZero<int32_t>(count, start)
                                 : NonZero<int8_t>(count, start);
}

// For each kind of division, `count` quotients between 3 and 5 elements of padding, as fusion would write it.
loops::Kernel PaddedQuotients(DType type, int64_t count) {
  KernelMaker make({count + 8}, 0, 0);
  const int32_t a = make.In(type, count), b = make.In(type, count);
  std::vector<int32_t> outs;
  for (size_t i = 0; i < std::size(kDivisions); ++i) outs.push_back(make.Out(type, count + 8));
  make.Element();
  loops::Inst inside;
  inside.code = Code::kInBounds;
  inside.type = DType::kBool;
  inside.index = Index({1});
  inside.low = 3;
  inside.high = 3 + count;
  const Id guard = make.Add(inside);
  const Id dividend = make.Load(a, Index({1}, -3), guard);
  const Id divisor = make.Op(Op::kWhere, type, {guard, make.Load(b, Index({1}, -3), guard), make.Integer(1, type)});
  for (size_t i = 0; i < std::size(kDivisions); ++i) {
    const Id quotient = make.Op(kDivisions[i], {dividend, divisor});
    make.Store(outs[i], Index({1}), make.Op(Op::kWhere, type, {guard, quotient, make.Integer(9, type)}));
  }
  return make.kernel;
}

std::vector<std::string> Operands(const loops::Kernel& kernel) {
  std::vector<std::string> buffers;
  for (const loops::KernelBuffer& buffer : kernel.buffers) {
    buffers.push_back(NonZero(buffer.dtype, buffer.extent, static_cast<int64_t>(buffers.size())));
  }
  return buffers;
}

TEST(GuardedDivisionTest, PaddingIsNotDivided) {
  for (DType type : {DType::kInt64, DType::kInt32, DType::kInt8}) {
    SCOPED_TRACE(ir::Name(type));
    const loops::Kernel kernel = PaddedQuotients(type, 30);
    ExpectLikeInterpreter(kernel, Operands(kernel));
  }
}

// Rows as lanes: those behind the last row hold zeros.
TEST(GuardedDivisionTest, LanesBehindTheLastRowAreNotDivided) {
  for (int64_t rows : {1, 21}) {
    KernelMaker make({rows, 3}, 1, 0);
    const int32_t a = make.In(DType::kInt32, rows * 3), b = make.In(DType::kInt32, rows * 3);
    const int32_t out = make.Out(DType::kInt32, rows);
    make.Element();
    const Id x = make.Load(a, Index({1, rows})), y = make.Load(b, Index({1, rows}));
    Id sum = make.Op(kDivisions[0], {x, y});
    for (Op op : {kDivisions[1], kDivisions[2], kDivisions[3]}) sum = make.Op(Op::kAdd, {sum, make.Op(op, {x, y})});
    const Id total = make.Reduce(Op::kSum, sum);
    make.Row();
    make.Store(out, Index({1}), total);
    ExpectLikeInterpreter(make.kernel, Operands(make.kernel));
  }
}

TEST(GuardedDivisionTest, ZeroThatCountsIsReported) {
  const loops::Kernel kernel = PaddedQuotients(DType::kInt32, 30);
  auto loaded = LoadedKernel::Load(kernel);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  for (int64_t at : {0, 13, 29}) {
    std::vector<std::string> buffers = Operands(kernel);
    std::vector<int32_t> divisors(30, 3);
    divisors[at] = 0;
    buffers[1] = Bytes(divisors);
    EXPECT_EQ((*loaded)->Run(buffers), STEPONE_KERNEL_DIVISION_BY_ZERO) << at;
  }
}

}  // namespace
}  // namespace stepone::codegen
