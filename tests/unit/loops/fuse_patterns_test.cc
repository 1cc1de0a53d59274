// What training steps are made of must come out as the fewest kernels.
#include <cstdint>

#include "compiler/ir/builder.h"
#include "gtest/gtest.h"
#include "tests/unit/loops/fuse_test_support.h"

namespace stepone::loops {
namespace {

using ir::DType;
using ir::Expr;
using ir::Op;

constexpr DType kF32 = DType::kFloat32;

Expr Exp(Expr x) { return ir::Unary(Op::kExp, x); }
Expr Tanh(Expr x) { return ir::Unary(Op::kTanh, x); }
Expr Sum(Expr x, const ir::Dims& dims, bool keep = true) { return ir::Reduce(Op::kSum, x, dims, keep); }

Expr Softmax(Expr x, int64_t dim) {
  const Expr e = Exp(x - ir::Reduce(Op::kMax, x, {dim}, true));
  return e / Sum(e, {dim});
}

Expr Dropout(TestGraph& t, Expr x, Expr* mask) {
  *mask = ir::Binary(Op::kGe, t.builder.Random(x.sizes()), ir::Scalar(0.25));
  return ir::Cast(*mask, kF32) * x * (1 / 0.75);
}

struct Norm {
  Expr out, mean, rstd;
};
Norm LayerNorm(Expr x, Expr gamma, Expr beta) {
  const Expr mean = ir::Mean(x, {-1}, true);
  const Expr centered = x - mean;
  const Expr rstd = ir::Unary(Op::kRsqrt, ir::Mean(centered * centered, {-1}, true) + 1e-5);
  return {centered * rstd * gamma + beta, mean, rstd};
}

TEST(FusePatternsTest, PointwiseChainWithBroadcastsIsOneKernel) {
  TestGraph t;
  const Expr x = t.Input(kF32, {6, 5, 8});
  const Expr bias = t.Input(kF32, {8});
  const Expr row = t.Input(kF32, {6, 1, 1});
  Expr y = Tanh(x + bias) * row;
  for (int i = 0; i < 20; ++i) y = y * 0.9 + x;
  t.Output(y);
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, SoftmaxWithScaleMaskAndDropoutIsOneKernel) {
  TestGraph t;
  const Expr scores = t.Input(kF32, {2, 3, 8, 16});
  const Expr mask = t.Input(DType::kBool, {2, 1, 1, 16});
  const Expr masked = ir::Where(ir::BroadcastTo(mask, {2, 3, 8, 16}), scores * 0.125, ir::Like(scores, -1e9));
  const Expr p = Softmax(masked, -1);
  Expr kept;
  const Expr dropped = Dropout(t, p, &kept);
  t.Output(p);
  t.Output(kept);
  t.Output(dropped);
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, CausalSoftmaxIsOneKernel) {
  TestGraph t;
  const Expr scores = t.Input(kF32, {2, 3, 8, 8});
  const Expr row = t.builder.Iota(DType::kInt64, {8, 8}, 0);
  const Expr column = t.builder.Iota(DType::kInt64, {8, 8}, 1);
  const Expr causal = ir::Binary(Op::kLe, column, row);
  t.Output(Softmax(ir::Where(ir::BroadcastTo(causal, {2, 3, 8, 8}), scores, ir::Like(scores, -1e9)), -1));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, SoftmaxBackwardWithDropoutBackwardIsOneKernel) {
  TestGraph t;
  const Expr upstream = t.Input(kF32, {2, 3, 8, 16});
  const Expr p = t.Input(kF32, {2, 3, 8, 16});
  const Expr kept = t.Input(DType::kBool, {2, 3, 8, 16});
  const Expr g = upstream * ir::Cast(kept, kF32) * 1.25;
  t.Output((g * p - p * Sum(g * p, {-1})) * 0.125);
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, LogSoftmaxIsOneKernel) {
  TestGraph t;
  const Expr x = t.Input(kF32, {16, 33});
  const Expr shifted = x - ir::Reduce(Op::kMax, x, {-1}, true);
  t.Output(shifted - ir::Unary(Op::kLog, Sum(Exp(shifted), {-1})));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, LayerNormWithResidualAndDropoutIsOneKernel) {
  TestGraph t;
  const Expr x = t.Input(kF32, {4, 6, 32});
  const Expr residual = t.Input(kF32, {4, 6, 32});
  const Expr bias = t.Input(kF32, {32});
  Expr kept;
  const Expr sum = Dropout(t, x + bias, &kept) + residual;
  const Norm norm = LayerNorm(sum, t.Input(kF32, {32}), t.Input(kF32, {32}));
  for (const Expr& out : {sum, kept, norm.out, norm.mean, norm.rstd}) t.Output(out);
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, RmsNormIsOneKernel) {
  TestGraph t;
  const Expr x = t.Input(kF32, {4, 6, 32});
  const Expr rstd = ir::Unary(Op::kRsqrt, ir::Mean(x * x, {-1}, true) + 1e-6);
  t.Output(x * rstd * t.Input(kF32, {32}));
  t.Output(rstd);
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

// dx rows with the columns' sums, then one kernel that adds up both gradients' partial sums.
TEST(FusePatternsTest, LayerNormBackwardIsTwoKernels) {
  TestGraph t;
  const Expr dy = t.Input(kF32, {64, 32});
  const Expr x = t.Input(kF32, {64, 32});
  const Expr mean = t.Input(kF32, {64, 1});
  const Expr rstd = t.Input(kF32, {64, 1});
  const Expr gamma = t.Input(kF32, {32});
  const Expr normal = (x - mean) * rstd;
  const Expr g = dy * gamma;
  const Expr dx = (g - ir::Mean(g, {-1}, true) - normal * ir::Mean(g * normal, {-1}, true)) * rstd;
  t.Output(dx);
  t.Output(Sum(dy * normal, {0}, false));
  t.Output(Sum(dy, {0}, false));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 2);
}

TEST(FusePatternsTest, BiasGradientIsSummedWhereItsOperandIsMade) {
  TestGraph t;
  const Expr dy = t.Input(kF32, {4, 16, 64});
  const Expr x = t.Input(kF32, {4, 16, 64});
  const Expr erf = ir::Unary(Op::kErf, x * 0.7071067811865476);
  const Expr density = Exp(x * x * -0.5) * 0.3989422804014327;
  const Expr dx = dy * ((erf + 1.0) * 0.5 + x * density);
  t.Output(ir::Reshape(dx, {64, 64}));
  t.Output(Sum(ir::Reshape(dx, {64, 64}), {0}, false));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 2);
}

TEST(FusePatternsTest, CrossEntropyForwardIsTwoKernels) {
  TestGraph t;
  const Expr x = t.Input(kF32, {32, 50});
  const Expr target = t.Input(DType::kInt64, {32}, 0, 50);
  const Expr shifted = x - ir::Reduce(Op::kMax, x, {-1}, true);
  const Expr log_p = shifted - ir::Unary(Op::kLog, Sum(Exp(shifted), {-1}));
  const Expr picked = ir::Gather(log_p, ir::Reshape(target, {32, 1}), 1);
  t.Output(log_p);
  t.Output(-Sum(picked, {0, 1}, false) / 32.0);
  EXPECT_EQ(Launches(FuseAndCheck(t)), 2);
}

TEST(FusePatternsTest, CrossEntropyBackwardIsOneKernel) {
  TestGraph t;
  const Expr log_p = t.Input(kF32, {32, 50});
  const Expr target = t.Input(DType::kInt64, {32}, 0, 50);
  const Expr upstream = t.Input(kF32, {});
  const Expr column = t.builder.Iota(DType::kInt64, {32, 50}, 1);
  const Expr hit = ir::Binary(Op::kEq, column, ir::BroadcastTo(ir::Reshape(target, {32, 1}), {32, 50}));
  const Expr scale = ir::BroadcastTo(-upstream / 32.0, {32, 50});
  const Expr g = ir::Where(hit, scale, ir::Like(log_p, 0.0));
  t.Output(g - Exp(log_p) * Sum(g, {-1}));
  EXPECT_LE(Launches(FuseAndCheck(t)), 2);
}

// The sum over a row of what is not zero at one label only needs no pass over the row.
TEST(FusePatternsTest, SumsOverOneHotRowsArePicks) {
  TestGraph t;
  const Expr target = t.Input(DType::kInt64, {16, 1}, -2, 24);
  const Expr scale = t.Input(kF32, {16, 1});
  const Expr x = t.Input(kF32, {16, 20});
  const Expr hit = ir::Binary(Op::kEq, t.builder.Iota(DType::kInt64, {16, 20}, 1), ir::BroadcastTo(target, {16, 20}));
  const Expr g = ir::Where(hit, ir::BroadcastTo(scale, {16, 20}), ir::Like(x, 0.0));
  t.Output(g - Exp(x) * Sum(g, {1}));
  const Program program = FuseAndCheck(t);
  ASSERT_EQ(Launches(program), 1);
  for (const Inst& inst : std::get<Launch>(program.steps[0]).kernel.insts) EXPECT_NE(inst.code, Code::kReduce);
}

// What is needed late is not computed early and kept: the mask is stored where the dropout uses it.
TEST(FusePatternsTest, DropoutMaskIsStoredInTheStageThatUsesIt) {
  TestGraph t;
  Expr kept;
  const Expr dropped = Dropout(t, Softmax(t.Input(kF32, {8, 32}), -1), &kept);
  t.Output(kept);
  t.Output(dropped);
  const Program program = FuseAndCheck(t);
  ASSERT_EQ(Launches(program), 1);
  EXPECT_EQ(std::get<Launch>(program.steps.back()).kernel.slots.size(), 1u) << Describe(program);  // the exponentials
}

TEST(FusePatternsTest, FullSumIsTwoKernelsUnlessItIsSmall) {
  for (const int64_t rows : {40, 512}) {
    TestGraph t;
    const Expr x = t.Input(kF32, {rows, 128});
    t.Output(Sum(x * x, {0, 1}, false) * 0.5);
    EXPECT_EQ(Launches(FuseAndCheck(t)), rows == 40 ? 1 : 2);
  }
}

TEST(FusePatternsTest, LongVectorIsSummedInRows) {
  TestGraph t;
  const Expr x = t.Input(kF32, {65536});
  t.Output(Sum(x * x, {0}, false));
  const Program program = FuseAndCheck(t);
  ASSERT_EQ(Launches(program), 2);
  EXPECT_GT(std::get<Launch>(program.steps[0]).kernel.dims[0], 1);
}

TEST(FusePatternsTest, BatchNormOfChannelsFirstIsOneKernel) {
  TestGraph t;
  const Expr x = t.Input(kF32, {3, 8, 6, 6});
  const Expr gamma = ir::Reshape(t.Input(kF32, {8}), {1, 8, 1, 1});
  const Expr mean = ir::Mean(x, {0, 2, 3}, true);
  const Expr centered = x - mean;
  const Expr rstd = ir::Unary(Op::kRsqrt, ir::Mean(centered * centered, {0, 2, 3}, true) + 1e-5);
  t.Output(centered * rstd * gamma);
  t.Output(ir::Reshape(mean, {8}));
  t.Output(ir::Reshape(rstd, {8}));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, LayerNormOverChannelsOfChannelsFirstVectorisesRows) {
  TestGraph t;
  const Expr x = t.Input(kF32, {2, 8, 8, 8});
  const Expr last = ir::Permute(x, {0, 2, 3, 1});
  const Norm norm = LayerNorm(last, t.Input(kF32, {8}), t.Input(kF32, {8}));
  t.Output(ir::Copy(ir::Permute(norm.out, {0, 3, 1, 2}), ir::ContiguousStrides({2, 8, 8, 8})));
  const Program program = FuseAndCheck(t);
  ASSERT_EQ(Launches(program), 1);
  const Kernel& kernel = std::get<Launch>(program.steps[0]).kernel;
  EXPECT_EQ(kernel.vector_dim, kernel.num_outer - 1) << ToString(kernel);
}

TEST(FusePatternsTest, EmbeddingWithAddAndLayerNormIsOneKernel) {
  TestGraph t;
  const Expr table = t.Input(kF32, {20, 16});
  const Expr index = t.Input(DType::kInt64, {4, 6}, 0, 20);
  const Expr positions = t.Input(kF32, {6, 16});
  const Norm norm = LayerNorm(ir::Take(table, index, 0, false) + positions, t.Input(kF32, {16}), t.Input(kF32, {16}));
  t.Output(norm.out);
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, EmbeddingBackwardTakesItsProducersIn) {
  TestGraph t;
  const Expr upstream = t.Input(kF32, {4, 6, 16});
  const Expr kept = t.Input(DType::kBool, {4, 6, 16});
  const Expr index = t.Input(DType::kInt64, {4, 6}, 0, 20);
  t.Output(ir::TakeGrad(upstream * ir::Cast(kept, kF32), index, 0, 20, 3));
  const Program program = FuseAndCheck(t);
  ASSERT_EQ(Launches(program), 2);
  EXPECT_TRUE(std::get<Launch>(program.steps[1]).kernel.ordered_rows);
}

TEST(FusePatternsTest, ConcatTakesItsProducersIn) {
  TestGraph t;
  const Expr a = t.Input(kF32, {4, 6}), b = t.Input(kF32, {4, 10});
  t.Output(ir::Concat({a * 2.0, b + 1.0}, 1));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, ConcatOfEqualPartsStoresEachPart) {
  TestGraph t;
  const auto heads = [&](Expr x) { return ir::Reshape(ir::Permute(Tanh(Exp(x)), {0, 2, 1, 3}), {2, 5, 12}); };
  std::vector<Expr> parts;
  for (int i = 0; i < 3; ++i) parts.push_back(heads(t.Input(kF32, {2, 3, 5, 4})));
  t.Output(ir::Concat(parts, 2));
  const Program program = FuseAndCheck(t);
  EXPECT_EQ(Launches(program), 1) << Describe(program);
}

TEST(FusePatternsTest, AMatrixAndItsTransposeAreOneCopy) {
  TestGraph t;
  const Expr x = t.Input(kF32, {2, 3, 4, 5});
  const Expr matrix = ir::Reshape(ir::Permute(x, {0, 2, 1, 3}), {8, 15});
  const Expr transposed = ir::Permute(matrix, {1, 0});
  t.graph.value(transposed.id).type.strides = {1, 15};
  t.Output(transposed);
  t.Output(matrix);
  const Program program = FuseAndCheck(t);
  ASSERT_EQ(Launches(program), 1);
  EXPECT_EQ(std::get<Launch>(program.steps[0]).buffers.size(), 2u) << Describe(program);
}

TEST(FusePatternsTest, RotaryEmbeddingIsOneKernel) {
  TestGraph t;
  const Expr x = t.Input(kF32, {2, 3, 8, 16});
  const Expr cos = t.Input(kF32, {8, 16}), sin = t.Input(kF32, {8, 16});
  const Expr rotated = ir::Concat({-ir::Slice(x, 3, 8, 8), ir::Slice(x, 3, 0, 8)}, 3);
  t.Output(x * cos + rotated * sin);
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, SliceBackwardIsOneKernelWithGuards) {
  TestGraph t;
  const Expr a = t.Input(kF32, {4, 6}), b = t.Input(kF32, {4, 6}), c = t.Input(kF32, {4, 6});
  const auto pad = [](Expr x, int64_t low, int64_t high) { return ir::Pad(x, {0, low}, {0, high}, 0.0); };
  t.Output(pad(a, 0, 12) + pad(b, 6, 6) + pad(c, 12, 0));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

// What is read in place of padding is 0, which must not be divided by.
TEST(FusePatternsTest, DivisionOfIntegersBesidePaddingIsNoError) {
  for (Op op : {Op::kFloorDiv, Op::kTruncDiv, Op::kRemainder, Op::kFmod}) {
    TestGraph t;
    const Expr a = t.Input(DType::kInt64, {3, 11}, -9, 9), b = t.Input(DType::kInt64, {3, 11}, 1, 5);
    const Expr quotient = ir::Binary(op, a, b);
    const Expr sum = a + b;
    t.Output(ir::Pad(quotient, {1, 2}, {0, 5}, 4.0));
    t.Output(ir::Concat({sum, quotient, ir::Slice(sum, 1, 0, 5)}, 1));
    t.Output(ir::Pad(ir::Pad(quotient, {0, 3}, {2, 0}, 0.0) + 1.0, {1, 1}, {1, 1}, 0.0));
    FuseAndCheck(t);
  }
}

TEST(FusePatternsTest, CopiesToOtherStridesAreStores) {
  TestGraph t;
  const Expr x = t.Input(kF32, {4, 8, 3, 5});
  const Expr y = Tanh(x) + 1.0;
  t.Output(ir::Copy(ir::Permute(y, {0, 2, 1, 3}), ir::ContiguousStrides({4, 3, 8, 5})));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, SiblingsThatReadTheSameDataAreOneKernel) {
  TestGraph t;
  const Expr x = t.Input(kF32, {64, 64});
  t.Output(Tanh(x));
  t.Output(Exp(x));
  t.Output(Sum(x, {1}, false));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, SmallIndependentKernelsAreOneKernel) {
  TestGraph t;
  for (int i = 0; i < 6; ++i) t.Output(Tanh(t.Input(kF32, {48})));
  EXPECT_EQ(Launches(FuseAndCheck(t)), 1);
}

TEST(FusePatternsTest, WithoutFusionEachNodeIsAKernel) {
  TestGraph t;
  const Expr x = t.Input(kF32, {64, 64});
  t.Output(Tanh(Exp(x) + x));
  FuseOptions options;
  options.disable_fusion = true;
  EXPECT_EQ(Launches(Fuse(t.graph, options)), 3);
}

TEST(FuseTest, InputsAndViewsOfThemComeBackWithoutKernels) {
  TestGraph t;
  const Expr x = t.Input(kF32, {4, 8});
  t.Output(x);
  t.Output(ir::Permute(ir::Slice(x, 1, 2, 4), {1, 0}));
  t.graph.value(t.graph.outputs[1].value).type.strides = {1, 8};
  const Program program = FuseAndCheck(t);
  EXPECT_EQ(Launches(program), 0);
  EXPECT_EQ(program.buffers[program.outputs[0].buffer].kind, Buffer::Kind::kInput);
  EXPECT_EQ(program.buffers[program.outputs[1].buffer].kind, Buffer::Kind::kView);
}

TEST(FuseTest, EmptyAndScalarTensors) {
  TestGraph t;
  const Expr empty = t.Input(kF32, {0, 4});
  const Expr scalar = t.Input(kF32, {});
  t.Output(Exp(empty));
  t.Output(Sum(empty, {0}, false));
  t.Output(Tanh(scalar) + Sum(empty, {0, 1}, false));
  t.Output(ir::Concat({empty, t.Input(kF32, {2, 4})}, 0));
  FuseAndCheck(t);
}

TEST(FuseTest, ReshapesThatDoNotNest) {
  TestGraph t;
  const Expr x = t.Input(kF32, {6, 4});
  t.Output(Tanh(ir::Reshape(ir::Permute(Exp(x), {1, 0}), {8, 3})));
  FuseAndCheck(t);
}

TEST(FuseTest, IndexOutOfRangeIsReported) {
  TestGraph t;
  t.Output(ir::Take(t.Input(kF32, {4, 8}), t.Input(DType::kInt64, {5}, 3, 9), 0, false));
  FuseAndCheck(t);
}

TEST(FuseTest, ArgMaxCountsPositionsInRowMajorOrder) {
  TestGraph t;
  const Expr x = t.InputWithStrides(kF32, {4, 6, 5}, {1, 20, 4});
  t.Output(ir::Reduce(Op::kArgMax, x, {1, 2}, false));
  t.Output(ir::Reduce(Op::kArgMin, x, {0}, false));
  FuseAndCheck(t);
}

TEST(FuseTest, SixteenBitFloatsAreComputedInFloat32) {
  TestGraph t;
  const Expr x = t.Input(DType::kBFloat16, {8, 32});
  const Expr wide = ir::Cast(x, kF32);
  t.Output(ir::Cast(Softmax(wide, -1), DType::kBFloat16));
  t.Output(ir::Cast(Sum(wide, {0}, false), DType::kBFloat16));
  EXPECT_LE(Launches(FuseAndCheck(t)), 2);
}

}  // namespace
}  // namespace stepone::loops
