// Kernels as data: what Verify refuses, the text form, and what canonical bytes depend on.
#include "compiler/loops/kernel.h"

#include "compiler/loops/index_expr.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stepone::loops {
namespace {

using ir::DType;
using ir::Op;
using testing::HasSubstr;

Inst Load(int32_t buffer, IndexExpr index) {
  Inst inst;
  inst.code = Code::kLoad;
  inst.buffer = buffer;
  inst.index = std::move(index);
  return inst;
}

Inst Store(int32_t buffer, IndexExpr index, InstId value) {
  Inst inst = Load(buffer, std::move(index));
  inst.code = Code::kStore;
  inst.args = {value};
  return inst;
}

Inst Scalar(Op op, std::vector<InstId> args) {
  Inst inst;
  inst.op = op;
  inst.args = std::move(args);
  return inst;
}

// Rows [4], columns [8]: out[row, column] = x[row, column] / sum of the row.
Kernel Normalise() {
  Kernel kernel;
  kernel.name = "normalise";
  kernel.dims = {4, 8};
  kernel.num_outer = 1;
  kernel.vector_dim = 1;
  kernel.buffers = {{DType::kFloat32, true, false, 32}, {DType::kFloat32, false, true, 32}};
  const IndexExpr at = Add(DimIndex(0, 8), DimIndex(1));
  Inst sum = Scalar(Op::kSum, {0});
  sum.code = Code::kReduce;
  kernel.insts = {Load(0, at), sum, Load(0, at), Scalar(Op::kDiv, {2, 1}), Store(1, at, 3)};
  kernel.stages = {{true, {0, 1}}, {true, {2, 3, 4}}};
  return kernel;
}

TEST(KernelTest, TextShowsLoopsBuffersAndStages) {
  EXPECT_EQ(ToString(Normalise()),
            "kernel normalise rows [d0=4] columns [d1=8] vector d1\n"
            "  b0: f32[32] read\n"
            "  b1: f32[32] write\n"
            "  element:\n"
            "    %0: f32 = load b0[8*d0+d1]\n"
            "    %1: f32 = reduce sum %0\n"
            "  element:\n"
            "    %2: f32 = load b0[8*d0+d1]\n"
            "    %3: f32 = div %2, %1\n"
            "    store b1[8*d0+d1], %3\n");
}

TEST(KernelTest, VerifyAcceptsIt) { EXPECT_EQ(Verify(Normalise()), ""); }

TEST(KernelTest, VerifyRefusesElementValuesOfOtherStages) {
  Kernel kernel = Normalise();
  kernel.insts[3].args = {0, 1};
  EXPECT_THAT(Verify(kernel), HasSubstr("belongs to element stage 0"));
}

TEST(KernelTest, VerifyRefusesReductionsBeforeTheyAreComplete) {
  Kernel kernel = Normalise();
  kernel.stages = {{true, {0, 1, 2, 3, 4}}};
  EXPECT_THAT(Verify(kernel), HasSubstr("not reduced yet"));
}

TEST(KernelTest, VerifyRefusesPositionsOutsideOfTheBuffer) {
  Kernel kernel = Normalise();
  kernel.insts[4].index.constant = 1;
  EXPECT_THAT(Verify(kernel), HasSubstr("leaves b1"));
}

TEST(KernelTest, VerifyRefusesMixedTypes) {
  Kernel kernel = Normalise();
  kernel.insts[3].type = DType::kFloat64;
  EXPECT_THAT(Verify(kernel), HasSubstr("mixed types"));
}

TEST(KernelTest, VerifyRefusesColumnsInRowStages) {
  Kernel kernel = Normalise();
  kernel.stages[0].element = false;
  EXPECT_THAT(Verify(kernel), HasSubstr("column dim"));
}

TEST(KernelTest, VerifyRefusesWritesToBuffersThatAreOnlyRead) {
  Kernel kernel = Normalise();
  kernel.insts[4].buffer = 0;
  EXPECT_THAT(Verify(kernel), HasSubstr("access flag"));
}

TEST(KernelTest, VerifyRefusesShardsWithoutAccumulates) {
  Kernel kernel = Normalise();
  kernel.shards = 2;
  EXPECT_THAT(Verify(kernel), HasSubstr("shards"));
}

TEST(KernelTest, BytesDependOnTheCodeAndNotOnNames) {
  const std::string bytes = CanonicalBytes(Normalise());
  Kernel renamed = Normalise();
  renamed.name = "other";
  renamed.sources = {"div_3"};
  renamed.bytes_moved = 7;
  EXPECT_EQ(CanonicalBytes(renamed), bytes);
  std::vector<Kernel> changed(7, Normalise());
  changed[0].dims[0] = 5;
  changed[1].vector_dim = 0;
  changed[2].insts[3].op = Op::kMul;
  changed[3].insts[0].index.terms[0].coefficient = 7;
  changed[4].buffers[1].extent = 33;
  changed[5].insts[0].number = -0.0;
  changed[6].stages.push_back({false, {}});
  for (const Kernel& kernel : changed) EXPECT_NE(CanonicalBytes(kernel), bytes);
}

}  // namespace
}  // namespace stepone::loops
