// Sums over rows into the slices of a partial buffer.
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

loops::Kernel ColumnSum(Op op, DType type, int64_t rows, int64_t columns, int64_t shards, bool lanes_outer) {
  KernelMaker make({rows, columns}, 1, lanes_outer ? 0 : 1);
  make.kernel.shards = shards;
  const int32_t in = make.In(type, rows * columns), out = make.Out(type, shards * columns);
  make.Element();
  make.Accumulate(op, out, make.Load(in, lanes_outer ? Index({1, rows}) : Index({columns, 1})));
  return make.kernel;
}

// Adds the slices up: what a split does to single slices is the schedule's affair.
void CheckTotal(const loops::Kernel& kernel, const std::string& in, int64_t columns, double tolerance) {
  auto loaded = LoadedKernel::Load(kernel);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::vector<std::string> buffers = {in, Blank(kF32, kernel.shards * columns)};
  ASSERT_EQ((*loaded)->Run(buffers), 0);
  const std::vector<float> x = Values<float>(in), partial = Values<float>(buffers[1]);
  const bool transposed = kernel.vector_dim == 0;
  const int64_t rows = kernel.dims[0];
  for (int64_t c = 0; c < columns; ++c) {
    double want = 0, got = 0;
    for (int64_t r = 0; r < rows; ++r) want += static_cast<double>(x[transposed ? c * rows + r : r * columns + c]);
    for (int64_t s = 0; s < kernel.shards; ++s) got += static_cast<double>(partial[s * columns + c]);
    ASSERT_NEAR(got, want, tolerance) << "column " << c << "\n" << (*loaded)->source().text;
  }
}

TEST(AccumulateTest, ColumnSumsOfManyShapes) {
  for (bool lanes_outer : {false, true}) {
    for (int64_t columns : {1, 3, 8, 9, 37}) {
      for (int64_t rows : {1, 2, 7, 64, 1000}) {
        for (int64_t shards : {1, 3}) {
          if (shards > rows) continue;
          SCOPED_TRACE(StrCat(rows, " x ", columns, " in ", shards, lanes_outer ? " transposed" : ""));
          CheckTotal(ColumnSum(Op::kSum, kF32, rows, columns, shards, lanes_outer),
                     RandomElements(kF32, rows * columns, 5), columns, 2e-4);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(AccumulateTest, LongColumnsKeepFloatAccuracy) {
  for (bool lanes_outer : {false, true}) {
    for (int64_t columns : {1, 4}) {
      const int64_t rows = 1 << 20;
      CheckTotal(ColumnSum(Op::kSum, kF32, rows, columns, 4, lanes_outer),
                 Bytes(std::vector<float>(rows * columns, 0.1f)), columns, 0.1 * rows * 2e-6);
    }
  }
}

TEST(AccumulateTest, OtherOpsAndDtypes) {
  for (bool lanes_outer : {false, true}) {
    for (Op op : {Op::kMax, Op::kMin, Op::kProd}) {
      for (DType type : {DType::kFloat32, DType::kInt32, DType::kInt64}) {
        ExpectLikeInterpreter(ColumnSum(op, type, 12, 21, 1, lanes_outer),
                              {RandomElements(type, 252, 8), Blank(type, 21)}, {.relative = 1e-5});
      }
    }
    for (Op op : {Op::kAny, Op::kAll}) {
      ExpectLikeInterpreter(ColumnSum(op, DType::kBool, 5, 21, 1, lanes_outer),
                            {RandomElements(DType::kBool, 105, 8), Blank(DType::kBool, 21)});
    }
  }
}

// Row reduction first, then a sum over rows of element values and one of row values: the shape of layer norm's
// backward.
loops::Kernel NormBackward(int64_t rows, int64_t columns, int64_t shards) {
  KernelMaker make({rows, columns}, 1, 1);
  make.kernel.shards = shards;
  const int32_t in = make.In(kF32, rows * columns), out = make.Out(kF32, rows * columns),
                weight = make.Out(kF32, shards * columns), bias = make.Out(kF32, shards * columns),
                total = make.Out(kF32, shards);
  make.Element();
  const Id sum = make.Reduce(Op::kSum, make.Load(in, Index({columns, 1})));
  make.Row();
  const Id mean = make.Op(Op::kMul, {sum, make.Number(1.0 / static_cast<double>(columns))});
  make.Accumulate(Op::kSum, total, mean);
  make.Element();
  const Id x = make.Load(in, Index({columns, 1}));
  const Id c = make.Op(Op::kSub, {x, mean});
  make.Store(out, Index({columns, 1}), c);
  make.Accumulate(Op::kSum, weight, make.Op(Op::kMul, {c, x}));
  make.Accumulate(Op::kSum, bias, x);
  return make.kernel;
}

TEST(AccumulateTest, WithRowReductionsAndStores) {
  for (int64_t rows : {1, 3, 4, 5, 30}) {
    for (int64_t columns : {1, 8, 13, 40}) {
      SCOPED_TRACE(StrCat(rows, " x ", columns));
      ExpectLikeInterpreter(NormBackward(rows, columns, 1),
                            {RandomElements(kF32, rows * columns, 4), Blank(kF32, rows * columns), Blank(kF32, columns),
                             Blank(kF32, columns), Blank(kF32, 1)},
                            {.relative = 2e-5, .scale = 1});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace stepone::codegen
