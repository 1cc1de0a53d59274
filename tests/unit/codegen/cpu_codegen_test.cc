// The text itself: determinism, portability, errors.
#include "compiler/codegen/cpu_codegen.h"

#include "compiler/build/build_cpu.h"
#include "compiler/codegen/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/codegen/kernel_maker.h"
#include "tests/unit/codegen/kernel_runner.h"

namespace stepone::codegen {
namespace {

using ir::Op;
using ::testing::HasSubstr;

// Row softmax, with exp kept between stages.
loops::Kernel Softmax(int64_t rows, int64_t columns) {
  KernelMaker make({rows, columns}, 1, 1);
  const int32_t in = make.In(kF32, rows * columns), out = make.Out(kF32, rows * columns);
  make.kernel.slots = {kF32};
  make.Element();
  const Id max = make.Reduce(Op::kMax, make.Load(in, Index({columns, 1})));
  make.Element();
  const Id e = make.Op(Op::kExp, {make.Op(Op::kSub, {make.Load(in, Index({columns, 1})), max})});
  make.Stash(0, e);
  const Id sum = make.Reduce(Op::kSum, e);
  make.Row();
  const Id r = make.Op(Op::kReciprocal, {sum});
  make.Element();
  make.Store(out, Index({columns, 1}), make.Op(Op::kMul, {make.Unstash(0), r}));
  return make.kernel;
}

TEST(CpuCodegenTest, TextDependsOnWhatTheKernelIsAndNotOnItsName) {
  loops::Kernel a = Softmax(5, 37), b = Softmax(5, 37);
  a.name = "softmax_3";
  a.sources = {"softmax", "div_2"};
  b.bytes_moved = 17;
  EXPECT_EQ(GenerateCpu(a, {})->text, GenerateCpu(b, {})->text);
  EXPECT_NE(GenerateCpu(a, {})->text, GenerateCpu(Softmax(5, 38), {})->text);
  EXPECT_EQ(GenerateCpu(a, {})->symbol, "stepone_kernel");
}

TEST(CpuCodegenTest, SoftmaxOfEveryShortLength) {
  for (int64_t columns = 1; columns <= 67; ++columns) {
    SCOPED_TRACE(columns);
    ExpectLikeInterpreter(Softmax(3, columns), {RandomElements(kF32, 3 * columns, 1), std::string(12 * columns, 'x')});
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(CpuCodegenTest, CompilesForEveryTarget) {
  const struct {
    const char* isa;
    int64_t vector_bytes;
  } targets[] = {{"x86-64-v3", 32},      {"x86-64-v4", 64},   {"znver4", 64},
                 {"sapphirerapids", 64}, {"neoverse-n1", 16}, {"neoverse-v1", 32}};
  for (const auto& target : targets) {
    SCOPED_TRACE(target.isa);
    auto source = GenerateCpu(Softmax(64, 1003), {.vector_bytes = target.vector_bytes});
    ASSERT_TRUE(source.ok());
    auto library = build::CpuBuilder::Create(target.isa).value()->Build(source->text, source->symbol, nullptr);
    EXPECT_TRUE(library.ok()) << library.status();
  }
}

TEST(CpuCodegenTest, AKernelThatDoesNotVerifyIsInternal) {
  loops::Kernel kernel = Softmax(2, 8);
  kernel.buffers[0].extent = 3;
  kernel.name = "bad_one";
  auto source = GenerateCpu(kernel, {});
  EXPECT_EQ(source.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(source.status().message()), HasSubstr("bad_one"));
}

TEST(CpuCodegenTest, UnitsCoverTheKernelAndGrainIsSane) {
  auto small = GenerateCpu(Softmax(2, 8), {});
  EXPECT_GE(small->grain, small->units);
  auto large = GenerateCpu(Softmax(4096, 1024), {});
  EXPECT_GT(large->units / large->grain, 16);
}

TEST(RandomTest, NumbersAreUniformAndDependOnEveryPart) {
  double sum = 0, squares = 0;
  const int count = 100000;
  for (int i = 0; i < count; ++i) {
    const double x = RandomUniform(42, 3, i);
    ASSERT_GE(x, 0);
    ASSERT_LT(x, 1);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / count, 0.5, 0.004);
  EXPECT_NEAR(squares / count, 1.0 / 3, 0.004);
  EXPECT_NE(RandomUniform(42, 3, 5), RandomUniform(43, 3, 5));
  EXPECT_NE(RandomUniform(42, 3, 5), RandomUniform(42, 4, 5));
  EXPECT_NE(RandomUniform(42, 3, 5), RandomUniform(42, 3, 13));
  EXPECT_NE(RandomUniform(42, 3, 5), RandomUniform(42, 3, 5 + (int64_t{1} << 40)));
}

}  // namespace
}  // namespace stepone::codegen
