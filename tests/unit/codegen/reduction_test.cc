// Reductions over columns: every op, every short length, long sums, lanes along columns and along rows.
#include <cmath>
#include <limits>

#include "compiler/ir/graph.h"
#include "gtest/gtest.h"
#include "proto/str_cat.h"
#include "tests/unit/codegen/kernel_maker.h"
#include "tests/unit/codegen/kernel_runner.h"

namespace stepone::codegen {
namespace {

using ir::DType;
using ir::Op;

std::string Blank(DType type, int64_t count) { return std::string(ir::ByteSize(type) * count, 'x'); }

// out[row] = op over columns of in[row, column]. `lanes_outer`: in is stored transposed, and rows are the lanes.
loops::Kernel Reduction(Op op, DType type, int64_t rows, int64_t columns, bool lanes_outer) {
  KernelMaker make({rows, columns}, 1, lanes_outer ? 0 : 1);
  const bool position = op == Op::kArgMax || op == Op::kArgMin;
  const int32_t in = make.In(type, rows * columns), out = make.Out(position ? DType::kInt64 : type, rows);
  make.Element();
  const Id x = make.Load(in, lanes_outer ? Index({1, rows}) : Index({columns, 1}));
  const Id total = make.Reduce(op, x);
  make.Row();
  make.Store(out, Index({1}), total);
  return make.kernel;
}

void Check(Op op, DType type, int64_t rows, int64_t columns, bool lanes_outer) {
  SCOPED_TRACE(StrCat(ir::Name(op), " ", ir::Name(type), " ", rows, " x ", columns, lanes_outer ? " transposed" : ""));
  const bool position = op == Op::kArgMax || op == Op::kArgMin;
  Tolerance tolerance{.relative = 1e-5, .scale = 1};
  if (type == DType::kBFloat16) tolerance.relative = 0.01;
  ExpectLikeInterpreter(Reduction(op, type, rows, columns, lanes_outer),
                        {RandomElements(type, rows * columns, static_cast<uint32_t>(columns)),
                         Blank(position ? DType::kInt64 : type, rows)},
                        tolerance);
}

TEST(ReductionTest, SumAndMaxAndArgMaxOfEveryShortLength) {
  for (int64_t columns = 1; columns <= 67; ++columns) {
    for (Op op : {Op::kSum, Op::kMax, Op::kArgMax}) Check(op, kF32, 2, columns, false);
    if (HasFatalFailure()) return;
  }
}

TEST(ReductionTest, EveryOpAndDtype) {
  for (bool lanes_outer : {false, true}) {
    for (DType type :
         {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt64, DType::kInt32, DType::kUInt8}) {
      for (Op op : {Op::kSum, Op::kProd, Op::kMax, Op::kMin, Op::kArgMax, Op::kArgMin})
        Check(op, type, 11, 37, lanes_outer);
    }
    for (Op op : {Op::kAny, Op::kAll}) {
      Check(op, DType::kBool, 11, 3, lanes_outer);
      Check(op, DType::kBool, 11, 70, lanes_outer);
    }
  }
}

TEST(ReductionTest, RowsAsLanesOfEveryShortLength) {
  for (int64_t rows = 1; rows <= 35; rows += 2) Check(Op::kSum, kF32, rows, 9, true);
}

TEST(ReductionTest, NanIsTheMaximumAndTheFirstOneIsItsPosition) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  std::vector<float> rows(4 * 40, 1);
  rows[5] = nan, rows[30] = nan;
  for (int i = 0; i < 40; ++i) rows[40 + i] = -inf;
  rows[80 + 39] = 7, rows[80 + 3] = 7;
  rows[120 + 38] = inf;
  for (Op op : {Op::kMax, Op::kArgMax, Op::kMin, Op::kArgMin}) {
    const bool position = op == Op::kArgMax || op == Op::kArgMin;
    ExpectLikeInterpreter(Reduction(op, kF32, 4, 40, false), {Bytes(rows), Blank(position ? DType::kInt64 : kF32, 4)});
  }
  auto loaded = LoadedKernel::Load(Reduction(Op::kArgMax, kF32, 4, 40, false));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::vector<std::string> buffers = {Bytes(rows), Blank(DType::kInt64, 4)};
  ASSERT_EQ((*loaded)->Run(buffers), 0);
  EXPECT_EQ(Values<int64_t>(buffers[1]), (std::vector<int64_t>{5, 0, 3, 38}));
}

TEST(ReductionTest, LongSumsKeepFloatAccuracy) {
  for (bool lanes_outer : {false, true}) {
    const int64_t rows = lanes_outer ? 8 : 1, columns = (1 << 22) / rows + 5;
    auto loaded = LoadedKernel::Load(Reduction(Op::kSum, kF32, rows, columns, lanes_outer));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    std::vector<std::string> buffers = {Bytes(std::vector<float>(rows * columns, 0.1f)), Blank(kF32, rows)};
    ASSERT_EQ((*loaded)->Run(buffers), 0);
    const double truth = static_cast<double>(0.1f) * static_cast<double>(columns);
    for (float sum : Values<float>(buffers[1])) EXPECT_NEAR(sum / truth, 1, 2e-6);
  }
}

TEST(ReductionTest, TwoColumnDimsWithAShortInnerOne) {
  // Sum over (i1, i2) of in[i1, i0, i2]: batch norm's statistics.
  for (int64_t inner : {3, 16, 20}) {
    KernelMaker make({5, 300, inner}, 1, 2);
    const int32_t in = make.In(kF32, 1500 * inner), out = make.Out(kF32, 5);
    make.Element();
    const Id sum = make.Reduce(Op::kSum, make.Load(in, Index({inner, 5 * inner, 1})));
    const Id position = make.Reduce(Op::kArgMax, make.Load(in, Index({inner, 5 * inner, 1})));
    make.Row();
    const int32_t where = make.Out(DType::kInt64, 5);
    make.Store(out, Index({1}), sum);
    make.Store(where, Index({1}), position);
    ExpectLikeInterpreter(make.kernel, {RandomElements(kF32, 1500 * inner, 3), Blank(kF32, 5), Blank(DType::kInt64, 5)},
                          {.relative = 1e-5, .scale = 1});
  }
}

// Layer norm with weight and bias; mean and variance in separate stages, x kept in a slot.
loops::Kernel LayerNorm(int64_t rows, int64_t columns) {
  KernelMaker make({rows, columns}, 1, 1);
  const int32_t in = make.In(kF32, rows * columns), weight = make.In(kF32, columns), bias = make.In(kF32, columns),
                out = make.Out(kF32, rows * columns);
  make.kernel.slots = {kF32};
  make.Element();
  const Id x = make.Load(in, Index({columns, 1}));
  make.Stash(0, x);
  const Id sum = make.Reduce(Op::kSum, x);
  make.Row();
  const Id scale = make.Number(1.0 / static_cast<double>(columns));
  const Id mean = make.Op(Op::kMul, {sum, scale});
  make.Element();
  const Id c = make.Op(Op::kSub, {make.Unstash(0), mean});
  const Id squares = make.Reduce(Op::kSum, make.Op(Op::kMul, {c, c}));
  make.Row();
  const Id variance = make.Op(Op::kAdd, {make.Op(Op::kMul, {squares, scale}), make.Number(1e-5)});
  const Id rstd = make.Op(Op::kRsqrt, {variance});
  make.Element();
  const Id n = make.Op(Op::kMul, {make.Op(Op::kSub, {make.Unstash(0), mean}), rstd});
  const Id scaled = make.Op(Op::kMul, {n, make.Load(weight, Index({0, 1}))});
  make.Store(out, Index({columns, 1}), make.Op(Op::kAdd, {scaled, make.Load(bias, Index({0, 1}))}));
  return make.kernel;
}

TEST(ReductionTest, LayerNormOfManyLengths) {
  for (int64_t columns : {1, 2, 7, 8, 9, 31, 32, 33, 64, 67, 768, 1000}) {
    SCOPED_TRACE(columns);
    ExpectLikeInterpreter(LayerNorm(3, columns),
                          {RandomElements(kF32, 3 * columns, 1), RandomElements(kF32, columns, 2),
                           RandomElements(kF32, columns, 3), Blank(kF32, 3 * columns)},
                          {.relative = 2e-5, .scale = 1});
  }
}

}  // namespace
}  // namespace stepone::codegen
