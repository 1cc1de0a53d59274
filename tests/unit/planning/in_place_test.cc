// Which kernels may write in place, and that generated code then gives the same bits as with memory of its own.
#include "compiler/planning/in_place.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "proto/str_cat.h"
#include "tests/unit/codegen/kernel_maker.h"
#include "tests/unit/codegen/kernel_runner.h"

namespace stepone::planning {
namespace {

using codegen::Id;
using codegen::Index;
using codegen::KernelMaker;
using codegen::kF32;
using ir::DType;
using ir::Op;

constexpr int32_t kIn = 0, kOut = 1;

// out[to] = tanh(in[from]) over [rows, columns].
loops::Kernel Tanh(int64_t rows, int64_t columns, loops::IndexExpr from, loops::IndexExpr to, DType to_type = kF32) {
  KernelMaker make({rows, columns}, 1, 1);
  make.In(kF32, rows * columns);
  make.Out(to_type, rows * columns);
  make.Element();
  const Id y = make.Op(Op::kTanh, {make.Load(kIn, std::move(from))});
  make.Store(kOut, std::move(to), to_type == kF32 ? y : make.Cast(to_type, y));
  return make.kernel;
}

// Softmax of each row. `transposed`: rows are the lanes.
loops::Kernel Softmax(int64_t rows, int64_t columns, bool transposed) {
  const loops::IndexExpr at = transposed ? Index({1, rows}) : Index({columns, 1});
  KernelMaker make({rows, columns}, 1, transposed ? 0 : 1);
  make.In(kF32, rows * columns);
  make.Out(kF32, rows * columns);
  make.kernel.slots = {kF32};
  make.Element();
  const Id most = make.Reduce(Op::kMax, make.Load(kIn, at));
  make.Element();
  const Id e = make.Op(Op::kExp, {make.Op(Op::kSub, {make.Load(kIn, at), most})});
  make.Stash(0, e);
  const Id sum = make.Reduce(Op::kSum, e);
  make.Element();
  make.Store(kOut, at, make.Op(Op::kDiv, {make.Unstash(0), sum}));
  return make.kernel;
}

// out = in * (1 - mean of the row's tanh), and sums over rows of out.
loops::Kernel ScaledWithColumnSums(int64_t rows, int64_t columns, int64_t shards) {
  KernelMaker make({rows, columns}, 1, 1);
  make.In(kF32, rows * columns);
  make.Out(kF32, rows * columns);
  const int32_t sums = make.Out(kF32, shards * columns);
  make.kernel.shards = shards;
  make.Element();
  const Id sum = make.Reduce(Op::kSum, make.Op(Op::kTanh, {make.Load(kIn, Index({columns, 1}))}));
  make.Element();
  const Id scaled = make.Op(Op::kMul, {make.Load(kIn, Index({columns, 1})), sum});
  make.Store(kOut, Index({columns, 1}), scaled);
  make.Accumulate(Op::kSum, sums, scaled);
  return make.kernel;
}

TEST(InPlaceTest, SameElementIsReadAndWritten) {
  EXPECT_TRUE(MayWriteInPlace(Tanh(3, 5, Index({5, 1}), Index({5, 1})), kOut, kIn));
  EXPECT_TRUE(MayWriteInPlace(Tanh(3, 5, Index({1, 3}), Index({1, 3})), kOut, kIn)) << "both transposed";
  EXPECT_TRUE(MayWriteInPlace(Softmax(3, 5, false), kOut, kIn));
  EXPECT_TRUE(MayWriteInPlace(ScaledWithColumnSums(6, 5, 2), kOut, kIn));
}

TEST(InPlaceTest, OtherElementsMustNotBeRead) {
  EXPECT_FALSE(MayWriteInPlace(Tanh(3, 3, Index({1, 3}), Index({3, 1})), kOut, kIn)) << "transposed";
  EXPECT_FALSE(MayWriteInPlace(Tanh(2, 4, Index({4, 1}, 1), Index({4, 1})), kOut, kIn)) << "the next one";
  EXPECT_FALSE(MayWriteInPlace(Tanh(3, 5, Index({0, 1}), Index({5, 1})), kOut, kIn)) << "broadcast";
  KernelMaker make({4}, 0, 0);
  make.In(kF32, 4);
  make.Out(kF32, 4);
  const int32_t index = make.In(DType::kInt64, 4);
  make.Element();
  make.Store(kOut, Index({1}), make.Take(kIn, Index({}), make.Load(index, Index({1})), 1, 4));
  EXPECT_FALSE(MayWriteInPlace(make.kernel, kOut, kIn)) << "at a computed place";
}

TEST(InPlaceTest, NothingIsReadAfterItWasWritten) {
  KernelMaker make({8}, 0, 0);
  make.In(kF32, 8);
  make.Out(kF32, 8);
  const int32_t other = make.Out(kF32, 8);
  make.Element();
  make.Store(kOut, Index({1}), make.Op(Op::kTanh, {make.Load(kIn, Index({1}))}));
  make.Store(other, Index({1}), make.Load(kIn, Index({1})));
  EXPECT_FALSE(MayWriteInPlace(make.kernel, kOut, kIn));
  EXPECT_TRUE(MayWriteInPlace(make.kernel, other, kIn)) << "the last store comes after both loads";
}

TEST(InPlaceTest, EachPointHasAPlaceOfItsOwn) {
  EXPECT_FALSE(MayWriteInPlace(Tanh(3, 5, Index({0, 1}), Index({0, 1})), kOut, kIn)) << "rows meet";
  EXPECT_FALSE(MayWriteInPlace(Tanh(3, 5, Index({2, 1}), Index({2, 1})), kOut, kIn)) << "rows overlap";
  EXPECT_TRUE(MayWriteInPlace(Tanh(1, 5, Index({0, 1}), Index({0, 1})), kOut, kIn)) << "there is one row";
}

TEST(InPlaceTest, OneWholeStoreOfTheSameDtype) {
  EXPECT_FALSE(MayWriteInPlace(Tanh(3, 5, Index({5, 1}), Index({5, 1}), DType::kInt32), kOut, kIn));
  KernelMaker guarded({8}, 0, 0);
  guarded.In(kF32, 8);
  guarded.Out(kF32, 8);
  guarded.Element();
  const Id x = guarded.Load(kIn, Index({1}));
  guarded.Store(kOut, Index({1}), x, guarded.Op(Op::kGt, DType::kBool, {x, guarded.Number(0)}));
  EXPECT_FALSE(MayWriteInPlace(guarded.kernel, kOut, kIn));
  EXPECT_FALSE(MayWriteInPlace(ScaledWithColumnSums(6, 5, 2), 2, kIn)) << "totals are read while they grow";
}

// Runs the kernel in units of one, the last first, with `out` in memory of its own and in place of `in`.
void ExpectSameBits(const loops::Kernel& kernel) {
  SCOPED_TRACE(loops::ToString(kernel));
  ASSERT_TRUE(MayWriteInPlace(kernel, kOut, kIn));
  for (int64_t vector_bytes : {16, 32, 64}) {
    auto loaded = codegen::LoadedKernel::Load(kernel, {.vector_bytes = vector_bytes});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    const auto run = [&](bool in_place) {
      std::vector<std::string> memory;
      std::vector<void*> pointers;
      for (size_t b = 0; b < kernel.buffers.size(); ++b) {
        memory.push_back(codegen::RandomElements(kernel.buffers[b].dtype, kernel.buffers[b].extent, 5));
      }
      for (std::string& bytes : memory) pointers.push_back(bytes.data());
      if (in_place) pointers[kOut] = pointers[kIn];
      for (int64_t unit = (*loaded)->source().units; unit-- > 0;) {
        EXPECT_EQ((*loaded)->function()(pointers.data(), nullptr, unit, unit + 1), 0);
      }
      std::string results(static_cast<char*>(pointers[kOut]), memory[kOut].size());
      for (size_t b = 2; b < memory.size(); ++b) results += memory[b];
      return results;
    };
    EXPECT_TRUE(run(true) == run(false)) << (*loaded)->source().text;
  }
}

TEST(InPlaceTest, GeneratedCodeGivesTheSameBits) {
  for (int64_t columns : {1, 7, 37, 3000}) {
    ExpectSameBits(Tanh(3, columns, Index({columns, 1}), Index({columns, 1})));
    ExpectSameBits(Tanh(3, columns, Index({1, 3}), Index({1, 3})));
    ExpectSameBits(Softmax(11, columns, false));
    ExpectSameBits(Softmax(37, std::min<int64_t>(columns, 40), true));
    ExpectSameBits(ScaledWithColumnSums(29, columns, 3));
  }
}

}  // namespace
}  // namespace stepone::planning
