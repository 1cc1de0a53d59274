// Hand-written plans with real kernels and ATen calls.
#include "client/executable.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/object_loader.h"
#include "client/output_pool.h"
#include "test_kernels.h"

namespace stepone::client {
namespace {

using ::testing::HasSubstr;

// Builds programs out of test_kernels.c.
class PlanBuilder {
 public:
  uint32_t Tensor(Storage storage, std::vector<int64_t> sizes, DType dtype = DType::kFloat32, uint32_t index = 0,
                  int64_t offset = 0) {
    Buffer buffer;
    buffer.dtype = dtype;
    buffer.strides.assign(sizes.size(), 1);
    for (size_t d = sizes.size(); d-- > 1;) buffer.strides[d - 1] = buffer.strides[d] * sizes[d];
    buffer.sizes = std::move(sizes);
    buffer.storage = storage;
    buffer.index = index;
    buffer.offset = offset;
    program->plan.buffers.push_back(buffer);
    return static_cast<uint32_t>(program->plan.buffers.size() - 1);
  }
  uint32_t Input(std::vector<int64_t> sizes, DType dtype = DType::kFloat32) {
    const uint32_t buffer = Tensor(Storage::kInput, std::move(sizes), dtype, program->plan.inputs.size());
    program->plan.inputs.push_back({InputSpec::Kind::kTensor, buffer, 0, false});
    return buffer;
  }
  void Launch(const std::string& symbol, std::vector<uint32_t> buffers, int64_t units, int64_t grain = 1 << 30) {
    program->plan.kernels.push_back({symbol, {"aten." + symbol}, 0, 0});
    const auto object = ObjectLoader::Global().Load(Sha256(TestKernelObject()), TestKernelObject());
    CHECK_OK(object.status());
    program->kernels.owners.push_back(*object);
    program->kernels.functions.push_back(reinterpret_cast<stepone_kernel_fn>((*object)->Symbol(symbol).value()));
    program->plan.steps.push_back(
        LaunchStep{static_cast<uint32_t>(program->plan.kernels.size() - 1), std::move(buffers), units, grain});
  }
  void Call(const std::string& op, std::vector<PlanArgument> arguments, std::vector<std::optional<uint32_t>> results,
            const std::string& out = "") {
    CallStep step;
    step.op = op;
    step.arguments = std::move(arguments);
    step.results = std::move(results);
    step.out_overload = out;
    step.node = "node";
    program->plan.steps.push_back(std::move(step));
  }
  void Return(uint32_t buffer) { program->plan.outputs.push_back({OutputSpec::Kind::kBuffer, buffer, 0}); }
  std::unique_ptr<Executable> Build() {
    CHECK_OK(CheckPlan(program->plan));
    return std::make_unique<Executable>(program);
  }

  std::shared_ptr<Program> program = std::make_shared<Program>();

 private:
  static void CHECK_OK(const absl::Status& status) {
    if (!status.ok()) throw std::runtime_error(status.ToString());
  }
};

// relu(a + b) * 2, with the sum in the arena, the relu extern.
std::unique_ptr<Executable> SumReluDouble(int64_t rows, int64_t columns, int64_t grain = 1 << 30) {
  PlanBuilder builder;
  const std::vector<int64_t> sizes = {rows, columns};
  const uint32_t a = builder.Input(sizes), b = builder.Input(sizes);
  const uint32_t sum = builder.Tensor(Storage::kArena, sizes, DType::kFloat32, 0, 64);
  const uint32_t relu = builder.Tensor(Storage::kExtern, sizes);
  const uint32_t out = builder.Tensor(Storage::kOutput, sizes);
  builder.program->plan.arena_bytes = 64 + rows * columns * 4;
  builder.Launch("add_f32", {a, b, sum}, rows * columns, grain);
  builder.Call("aten.relu.default", {{"self", BufferRef{sum}}}, {relu});
  builder.Launch("double_f32", {relu, out}, rows * columns, grain);
  builder.program->plan.steps.push_back(FreeStep{{relu}});
  builder.Return(out);
  return builder.Build();
}

TEST(ExecutableTest, RunsKernelsAndCalls) {
  const auto executable = SumReluDouble(3, 5);
  const at::Tensor a = at::randn({3, 5}), b = at::randn({3, 5});
  const auto outputs = executable->Run({a, b});
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_TRUE(at::equal(outputs[0].toTensor(), at::relu(a + b) * 2));
  EXPECT_EQ(executable->counters().kernel_launches, 2);
  EXPECT_EQ(executable->counters().extern_calls, 1);
  EXPECT_EQ(executable->counters().restrided, 0);
}

TEST(ExecutableTest, ShardsAreTheWholeRange) {
  const auto executable = SumReluDouble(257, 33, 100);
  const at::Tensor a = at::randn({257, 33}), b = at::randn({257, 33});
  EXPECT_TRUE(at::equal(executable->Run({a, b})[0].toTensor(), at::relu(a + b) * 2));
}

TEST(ExecutableTest, ConcurrentRunsDoNotMeet) {
  const auto executable = SumReluDouble(64, 64, 512);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        const at::Tensor a = at::randn({64, 64}), b = at::randn({64, 64});
        if (!at::equal(executable->Run({a, b})[0].toTensor(), at::relu(a + b) * 2)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(executable->counters().runs, 200);
}

TEST(ExecutableTest, AnOutputsMemoryIsReusedOnlyAfterItIsFreed) {
  const auto executable = SumReluDouble(100, 100);
  const at::Tensor a = at::ones({100, 100});
  at::Tensor first = executable->Run({a, a})[0].toTensor();
  at::Tensor second = executable->Run({a, a})[0].toTensor();
  void* const address = first.data_ptr();
  EXPECT_NE(address, second.data_ptr());
  first.reset();
  EXPECT_EQ(executable->Run({a, a})[0].toTensor().data_ptr(), address);
  EXPECT_TRUE(at::equal(second, a * 4));
}

TEST(ExecutableTest, AnOutputsStorageCanBeResized) {
  const auto executable = SumReluDouble(4, 4);
  at::Tensor out = executable->Run({at::ones({4, 4}), at::ones({4, 4})})[0].toTensor();
  out.resize_({100});
  EXPECT_EQ(out[15].item<float>(), 4.0f);
}

TEST(ExecutableTest, TensorsOutliveTheirExecutable) {
  auto executable = SumReluDouble(4, 4);
  const at::Tensor out = executable->Run({at::ones({4, 4}), at::ones({4, 4})})[0].toTensor();
  executable.reset();
  EXPECT_TRUE(at::equal(out, at::full({4, 4}, 4.0f)));
}

TEST(ExecutableTest, RefusesInputsOfAnotherKind) {
  const auto executable = SumReluDouble(3, 5);
  const at::Tensor good = at::ones({3, 5});
  EXPECT_THROW(executable->Run({good}), c10::ValueError);
  EXPECT_THROW(executable->Run({good, at::ones({3, 4})}), c10::ValueError);
  EXPECT_THROW(executable->Run({good, good.to(at::kDouble)}), c10::ValueError);
  EXPECT_THROW(executable->Run({good, at::empty({3, 5}, at::kMeta)}), c10::ValueError);
  EXPECT_THROW(executable->Run({good, c10::IValue(int64_t{3})}), c10::ValueError);
  EXPECT_EQ(executable->counters().errors, 5);
  EXPECT_EQ(executable->counters().kernel_launches, 0);
}

TEST(ExecutableTest, AnInputWithOtherStridesIsCopiedAndCounted) {
  const auto executable = SumReluDouble(3, 5);
  const at::Tensor a = at::randn({5, 3}).t(), b = at::randn({1, 5}).expand({3, 5});
  EXPECT_TRUE(at::equal(executable->Run({a, b})[0].toTensor(), at::relu(a + b) * 2));
  EXPECT_EQ(executable->counters().restrided, 2);
}

TEST(ExecutableTest, AMutatedInputIsTheCallersAlsoWhenItHadToBeCopied) {
  PlanBuilder builder;
  const uint32_t a = builder.Input({2, 3});
  builder.Launch("increment_f32", {a}, 6);
  builder.Return(a);
  const auto executable = builder.Build();
  at::Tensor dense = at::zeros({2, 3}), transposed = at::zeros({3, 2}).t();
  const auto same = executable->Run({dense});
  EXPECT_TRUE(same[0].toTensor().is_same(dense));
  EXPECT_TRUE(at::equal(dense, at::ones({2, 3})));
  const auto other = executable->Run({transposed});
  EXPECT_TRUE(other[0].toTensor().is_same(transposed));
  EXPECT_TRUE(at::equal(transposed, at::ones({2, 3})));
}

TEST(ExecutableTest, AViewOfAnInputIsReturnedAsAnAlias) {
  PlanBuilder builder;
  const uint32_t a = builder.Input({4, 3});
  const uint32_t row = builder.Tensor(Storage::kView, {3}, DType::kFloat32, a, 6);
  builder.Return(row);
  const auto executable = builder.Build();
  const at::Tensor base = at::arange(24, at::kFloat).view({8, 3}).slice(0, 4);
  const at::Tensor out = executable->Run({base})[0].toTensor();
  EXPECT_EQ(out.data_ptr(), base[2].data_ptr());
  EXPECT_TRUE(out.is_alias_of(base));
  EXPECT_FALSE(out.is_inference());
  EXPECT_TRUE(at::equal(out, base[2]));
  EXPECT_THROW(executable->Run({at::zeros({3, 4}).t()}), c10::ValueError);
}

TEST(ExecutableTest, AnExternViewOfScratchMemoryIsCopiedOut) {
  PlanBuilder builder;
  const uint32_t a = builder.Input({4});
  const uint32_t twice = builder.Tensor(Storage::kArena, {4});
  const uint32_t view = builder.Tensor(Storage::kExtern, {2, 2});
  builder.program->plan.arena_bytes = 16;
  builder.Launch("double_f32", {a, twice}, 4);
  builder.Call("aten.view.default", {{"self", BufferRef{twice}}, {"size", std::vector<int64_t>{2, 2}}}, {view});
  builder.Return(view);
  const auto executable = builder.Build();
  const at::Tensor first = executable->Run({at::ones({4})})[0].toTensor();
  executable->Run({at::zeros({4})});
  EXPECT_TRUE(at::equal(first, at::full({2, 2}, 2.0f)));
}

TEST(ExecutableTest, IndexOutOfRangeIsAnIndexErrorAndStopsTheRun) {
  PlanBuilder builder;
  const uint32_t table = builder.Input({4}), index = builder.Input({6}, DType::kInt64), counter = builder.Input({1});
  const uint32_t out = builder.Tensor(Storage::kOutput, {6});
  builder.Launch("gather_f32", {table, index, out}, 6, 2);
  builder.Launch("increment_f32", {counter}, 1);
  builder.Return(out);
  const auto executable = builder.Build();
  const at::Tensor values = at::arange(4, at::kFloat), good = at::tensor({0, 3, 2, 1, 0, 1}, at::kLong);
  at::Tensor runs = at::zeros({1});
  EXPECT_TRUE(at::equal(executable->Run({values, good, runs})[0].toTensor(), good.to(at::kFloat)));
  try {
    executable->Run({values, at::tensor({0, 3, 2, 1, 4, 1}, at::kLong), runs});
    FAIL() << "no error";
  } catch (const c10::IndexError& error) {
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("index out of range in self"));
    EXPECT_THAT(error.what_without_backtrace(), HasSubstr("aten.gather_f32"));
  }
  EXPECT_EQ(runs.item<float>(), 1.0f);
  EXPECT_EQ(executable->counters().errors, 1);
  EXPECT_EQ(executable->Run({values, good, runs}).size(), 1u);  // usable afterwards
}

TEST(ExecutableTest, IntegerDivisionByZeroIsAnError) {
  PlanBuilder builder;
  const uint32_t a = builder.Input({2}, DType::kInt64), b = builder.Input({2}, DType::kInt64);
  const uint32_t out = builder.Tensor(Storage::kOutput, {2}, DType::kInt64);
  builder.Launch("divide_i64", {a, b, out}, 2);
  builder.Return(out);
  const auto executable = builder.Build();
  EXPECT_THROW(executable->Run({at::tensor({4, 9}, at::kLong), at::tensor({2, 0}, at::kLong)}), c10::Error);
}

TEST(ExecutableTest, TheSeedFollowsTheDefaultGenerator) {
  PlanBuilder builder;
  const uint32_t seed = builder.Tensor(Storage::kArena, {1}, DType::kInt64);
  const uint32_t out = builder.Tensor(Storage::kOutput, {1}, DType::kInt64);
  builder.program->plan.arena_bytes = 8;
  builder.program->plan.steps.push_back(SeedStep{seed});
  builder.Launch("copy_i64", {seed, out}, 1);
  builder.Return(out);
  const auto executable = builder.Build();
  const auto draw = [&] { return executable->Run({})[0].toTensor().item<int64_t>(); };
  at::manual_seed(7);
  const int64_t first = draw(), second = draw();
  at::manual_seed(7);
  EXPECT_EQ(draw(), first);
  EXPECT_EQ(draw(), second);
  EXPECT_NE(first, second);
}

TEST(ExecutableTest, ResultsWithOtherStridesAreBroughtToTheTracedOnes) {
  PlanBuilder builder;
  const uint32_t a = builder.Input({2, 3});
  const uint32_t transposed = builder.Tensor(Storage::kExtern, {3, 2});  // traced as dense, comes as {1, 3}
  const uint32_t out = builder.Tensor(Storage::kOutput, {3, 2});
  builder.Call("aten.transpose.int", {{"self", BufferRef{a}}, {"dim0", int64_t{0}}, {"dim1", int64_t{1}}},
               {transposed});
  builder.Launch("double_f32", {transposed, out}, 6);
  builder.Return(out);
  const auto executable = builder.Build();
  const at::Tensor input = at::randn({2, 3});
  EXPECT_TRUE(at::equal(executable->Run({input})[0].toTensor(), input.t() * 2));
  EXPECT_EQ(executable->counters().restrided, 1);
}

TEST(ExecutableTest, OutOverloadsWriteIntoThePlansMemory) {
  PlanBuilder builder;
  const uint32_t a = builder.Input({4, 8}), b = builder.Input({8, 2});
  const uint32_t product = builder.Tensor(Storage::kArena, {4, 2});
  const uint32_t out = builder.Tensor(Storage::kOutput, {4, 2});
  builder.program->plan.arena_bytes = 32;
  builder.Call("aten.mm.default", {{"self", BufferRef{a}}, {"mat2", BufferRef{b}}}, {product}, "out");
  builder.Launch("double_f32", {product, out}, 8);
  builder.Return(out);
  const auto executable = builder.Build();
  const at::Tensor x = at::randn({4, 8}), y = at::randn({8, 2});
  EXPECT_TRUE(at::allclose(executable->Run({x, y})[0].toTensor(), at::mm(x, y) * 2));
}

TEST(ExecutableTest, ArgumentsOfAllTypes) {
  PlanBuilder builder;
  const uint32_t x = builder.Input({1, 2, 6, 6}), w = builder.Input({3, 2, 3, 3});
  const uint32_t conv = builder.Tensor(Storage::kExtern, {1, 3, 4, 4}),
                 sum = builder.Tensor(Storage::kExtern, {1, 3, 4, 4});
  const uint32_t both = builder.Tensor(Storage::kExtern, {1, 6, 4, 4}),
                 half = builder.Tensor(Storage::kExtern, {1, 3, 4, 4});
  const uint32_t doubled = builder.Tensor(Storage::kExtern, {1, 3, 4, 4}, DType::kFloat64);
  builder.Call("aten.convolution.default",
               {{"input", BufferRef{x}},
                {"weight", BufferRef{w}},
                {"bias", std::monostate{}},
                {"stride", std::vector<int64_t>{1, 1}},
                {"padding", std::vector<int64_t>{0, 0}},
                {"dilation", std::vector<int64_t>{1, 1}},
                {"transposed", false},
                {"output_padding", std::vector<int64_t>{0, 0}},
                {"groups", int64_t{1}}},
               {conv});
  builder.Call("aten.add.Tensor", {{"self", BufferRef{conv}}, {"other", 1.5}, {"alpha", int64_t{1}}}, {sum});
  builder.Call("aten.cat.default", {{"tensors", OptionalBufferList{conv, sum}}, {"dim", int64_t{1}}}, {both});
  builder.Call("aten.split_with_sizes.default",
               {{"self", BufferRef{both}}, {"split_sizes", std::vector<int64_t>{3, 3}}, {"dim", int64_t{1}}},
               {std::nullopt, half});
  std::get<CallStep>(builder.program->plan.steps.back()).results_are_list = true;
  builder.Call("aten._to_copy.default",
               {{"self", BufferRef{half}},
                {"dtype", DType::kFloat64},
                {"layout", LayoutName{"strided"}},
                {"device", DeviceName{"cpu"}},
                {"pin_memory", false},
                {"non_blocking", false},
                {"memory_format", MemoryFormatName{"contiguous_format"}}},
               {doubled});
  builder.Return(doubled);
  const auto executable = builder.Build();
  const at::Tensor input = at::randn({1, 2, 6, 6}), weight = at::randn({3, 2, 3, 3});
  const at::Tensor expected = (at::conv2d(input, weight) + 1.5).to(at::kDouble);
  EXPECT_TRUE(at::allclose(executable->Run({input, weight})[0].toTensor(), expected));
}

TEST(ExecutableTest, HostScalarsAndIntsPassThrough) {
  PlanBuilder builder;
  Plan& plan = builder.program->plan;
  const uint32_t x = builder.Input({3});
  Buffer scalar;
  scalar.storage = Storage::kInput;
  scalar.index = 1;
  scalar.opaque = true;
  plan.buffers.push_back(scalar);
  plan.inputs.push_back({InputSpec::Kind::kHostScalar, 1, 0, false});
  plan.inputs.push_back({InputSpec::Kind::kInt, 0, 3, false});
  const uint32_t out = builder.Tensor(Storage::kExtern, {3});
  builder.Call("aten.mul.Scalar", {{"self", BufferRef{x}}, {"other", BufferRef{1}}}, {out});
  builder.Return(out);
  plan.outputs.push_back({OutputSpec::Kind::kInt, 0, 3});
  plan.outputs.push_back({});
  const auto executable = builder.Build();
  const auto outputs = executable->Run({at::ones({3}), 2.5, int64_t{3}});
  EXPECT_TRUE(at::equal(outputs[0].toTensor(), at::full({3}, 2.5f)));
  EXPECT_EQ(outputs[1].toInt(), 3);
  EXPECT_TRUE(outputs[2].isNone());
  EXPECT_THROW(executable->Run({at::ones({3}), 2.5, int64_t{4}}), c10::ValueError);
}

TEST(ExecutableTest, AnInputIsFreedAfterItsLastUse) {
  const auto executable = SumReluDouble(3, 5);
  at::Tensor a = at::ones({3, 5});
  const c10::weak_intrusive_ptr<c10::TensorImpl> watch(a.getIntrusivePtr());
  std::vector<c10::IValue> inputs{std::move(a), at::ones({3, 5})};
  const auto outputs = executable->Run(std::move(inputs));
  EXPECT_TRUE(watch.expired());
}

TEST(ExecutableTest, RefusesCallsThatDoNotFitTheirSchema) {
  const auto build = [](const std::string& op, std::vector<PlanArgument> arguments) {
    PlanBuilder builder;
    const uint32_t x = builder.Input({3});
    arguments.insert(arguments.begin(), {"self", BufferRef{x}});
    builder.Call(op, std::move(arguments), {builder.Tensor(Storage::kExtern, {3})});
    builder.Build();
  };
  EXPECT_THROW(build("aten.no_such_op.default", {}), c10::Error);
  EXPECT_THROW(build("nonsense", {}), c10::Error);
  EXPECT_THROW(build("aten.mul.Tensor", {}), c10::Error);  // lacks `other`
  EXPECT_THROW(build("aten.sum.dim_IntList", {{"dim", std::string("rows")}}), c10::Error);
  EXPECT_NO_THROW(build("aten.relu.default", {}));
}

TEST(ExecutableTest, AutogradStaysOutside) {
  const auto executable = SumReluDouble(2, 2);
  const at::Tensor a = at::ones({2, 2}).requires_grad_();
  const at::Tensor out = executable->Run({a, a})[0].toTensor();
  EXPECT_FALSE(out.requires_grad());
  EXPECT_FALSE(out.is_inference());
}

TEST(ExecutableTest, ProfileNamesEachStep) {
  const auto executable = SumReluDouble(3, 5);
  executable->Run({at::ones({3, 5}), at::ones({3, 5})});
  executable->SetProfiling(true);
  for (int i = 0; i < 3; ++i) executable->Run({at::ones({3, 5}), at::ones({3, 5})});
  const auto profile = executable->Profile();
  ASSERT_EQ(profile.size(), 4u);
  for (const auto& step : profile) EXPECT_EQ(step.calls, 3);
}

}  // namespace
}  // namespace stepone::client
