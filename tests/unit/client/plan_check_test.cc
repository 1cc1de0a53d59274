// Hostile and damaged plans: each is refused for the stated reason.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/plan.h"

namespace stepone::client {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Buffer MakeBuffer(Storage storage, uint32_t index = 0, int64_t offset = 0) {
  Buffer buffer;
  buffer.sizes = {2, 3};
  buffer.strides = {3, 1};
  buffer.storage = storage;
  buffer.index = index;
  buffer.offset = offset;
  return buffer;
}

// input 0 -> kernel -> arena 1 -> relu -> extern 2, viewed as 3 -> kernel -> output 4; 5 is a constant, 6 a seed.
Plan GoodPlan() {
  Plan plan;
  plan.kernels.resize(1);
  plan.arena_bytes = 128;
  plan.constants = {std::string(24, '\0')};
  plan.inputs = {InputSpec{InputSpec::Kind::kTensor, 0, 0, false}};
  plan.buffers = {MakeBuffer(Storage::kInput),   MakeBuffer(Storage::kArena, 0, 64), MakeBuffer(Storage::kExtern),
                  MakeBuffer(Storage::kView, 2), MakeBuffer(Storage::kOutput),       MakeBuffer(Storage::kConstant),
                  MakeBuffer(Storage::kArena)};
  plan.buffers[6].dtype = DType::kInt64;
  plan.buffers[6].sizes = {1};
  plan.buffers[6].strides = {1};
  CallStep relu;
  relu.op = "aten.relu.default";
  relu.arguments = {{"self", BufferRef{1}}};
  relu.results = {2};
  plan.steps = {SeedStep{6}, LaunchStep{0, {0, 5, 1}, 6, 1}, relu, LaunchStep{0, {3, 6, 4}, 6, 1}, FreeStep{{2}}};
  plan.outputs = {OutputSpec{OutputSpec::Kind::kBuffer, 4, 0}, OutputSpec{OutputSpec::Kind::kBuffer, 0, 0},
                  OutputSpec{OutputSpec::Kind::kInt, 0, 7}, OutputSpec{}};
  return plan;
}

TEST(PlanCheckTest, AcceptsAGoodPlan) { EXPECT_TRUE(CheckPlan(GoodPlan()).ok()) << CheckPlan(GoodPlan()); }

struct Row {
  const char* name;
  std::function<void(Plan&)> damage;
  const char* message;
};

class BadPlanTest : public ::testing::TestWithParam<Row> {};

TEST_P(BadPlanTest, IsRefusedForTheStatedReason) {
  Plan plan = GoodPlan();
  GetParam().damage(plan);
  const absl::Status status = CheckPlan(plan);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
}

CallStep& Call(Plan& plan) { return std::get<CallStep>(plan.steps[2]); }
LaunchStep& Launch(Plan& plan) { return std::get<LaunchStep>(plan.steps[1]); }

const Row kRows[] = {
    {"ArenaNegative", [](Plan& p) { p.arena_bytes = -1; }, "arena of -1 bytes"},
    {"ArenaHuge", [](Plan& p) { p.arena_bytes = kMax; }, "arena of"},
    {"UnknownStorage", [](Plan& p) { p.buffers[1].storage = static_cast<Storage>(9); }, "unknown storage"},
    {"UnknownDType", [](Plan& p) { p.buffers[1].dtype = static_cast<DType>(77); }, "dtype without a size"},
    {"OtherDTypeWithMemory", [](Plan& p) { p.buffers[1].dtype = DType::kOther; }, "dtype without a size"},
    {"OpaqueArena", [](Plan& p) { p.buffers[1].opaque = true; }, "opaque and has memory"},
    {"StridesMissing", [](Plan& p) { p.buffers[0].strides = {1}; }, "unequal numbers"},
    {"NegativeSize", [](Plan& p) { p.buffers[0].sizes[0] = -2; }, "negative size"},
    {"NegativeStride", [](Plan& p) { p.buffers[0].strides[0] = -3; }, "negative size or stride"},
    {"CountOverflows", [](Plan& p) { p.buffers[0].sizes = {kMax, kMax}; }, "too large"},
    {"ExtentOverflows", [](Plan& p) { p.buffers[0].strides = {kMax, kMax}; }, "reaches too far"},
    {"ManyDimensions",
     [](Plan& p) {
       p.buffers[0].sizes.assign(1000, 1);
       p.buffers[0].strides.assign(1000, 1);
     },
     "too many dimensions"},
    {"ArenaOffsetNegative", [](Plan& p) { p.buffers[1].offset = -4; }, "bad offset"},
    {"ArenaOffsetUnaligned", [](Plan& p) { p.buffers[1].offset = 65; }, "bad offset"},
    {"ArenaOffsetBeyond", [](Plan& p) { p.buffers[1].offset = 132; }, "beyond the arena"},
    {"ArenaEndBeyond", [](Plan& p) { p.buffers[1].offset = 108; }, "beyond the arena"},
    {"ArenaStrideBeyond", [](Plan& p) { p.buffers[1].strides = {1000, 1}; }, "beyond the arena"},
    {"ConstantMissing", [](Plan& p) { p.buffers[5].index = 1; }, "constant that does not exist"},
    {"ConstantShort", [](Plan& p) { p.constants[0].resize(20); }, "larger than its constant"},
    {"InputMissing", [](Plan& p) { p.buffers[0].index = 4; }, "input that does not exist"},
    {"InputOfAnother", [](Plan& p) { p.buffers[2].storage = Storage::kInput; }, "not the buffer of its input"},
    {"InputIsAnInt", [](Plan& p) { p.inputs[0].kind = InputSpec::Kind::kInt; }, "not the buffer of its input"},
    {"InputBufferMissing", [](Plan& p) { p.inputs.push_back({InputSpec::Kind::kTensor, 99, 0, false}); },
     "names a buffer that does not exist"},
    {"InputNotItsOwn", [](Plan& p) { p.inputs.push_back({InputSpec::Kind::kTensor, 1, 0, false}); }, "not its own"},
    {"HostScalarWithMemory", [](Plan& p) { p.inputs[0].kind = InputSpec::Kind::kHostScalar; }, "scalar with memory"},
    {"ViewOfItself", [](Plan& p) { p.buffers[3].index = 3; }, "view of itself"},
    {"ViewOfNothing", [](Plan& p) { p.buffers[3].index = 50; }, "view of a buffer that does not exist"},
    {"ViewTooFar", [](Plan& p) { p.buffers[3].offset = 1; }, "beyond what it views"},
    {"ViewOffsetNegative", [](Plan& p) { p.buffers[3].offset = -1; }, "bad offset"},
    {"ViewOffsetHuge", [](Plan& p) { p.buffers[3].offset = kMax; }, "bad offset"},
    {"ViewOtherItemSize", [](Plan& p) { p.buffers[3].dtype = DType::kInt8; }, "another element size"},
    {"ViewOfOpaque", [](Plan& p) { p.buffers[2].opaque = true; }, "view of an opaque"},
    {"KernelMissing", [](Plan& p) { Launch(p).kernel = 1; }, "kernel that does not exist"},
    {"UnitsNegative", [](Plan& p) { Launch(p).units = -1; }, "bad number of units"},
    {"GrainZero", [](Plan& p) { Launch(p).grain = 0; }, "bad grain"},
    {"LaunchBufferMissing", [](Plan& p) { Launch(p).buffers = {77}; }, "buffer that does not exist"},
    {"LaunchBeforeDefined", [](Plan& p) { Launch(p).buffers = {3}; }, "holds nothing at that time"},
    {"CallArgumentMissing", [](Plan& p) { Call(p).arguments[0].value = BufferRef{9}; }, "does not exist"},
    {"CallListMissing", [](Plan& p) { Call(p).arguments[0].value = OptionalBufferList{9}; }, "does not exist"},
    {"CallReadsItsResult", [](Plan& p) { Call(p).arguments[0].value = BufferRef{2}; }, "holds nothing"},
    {"CallResultMissing", [](Plan& p) { Call(p).results = {12}; }, "does not exist"},
    {"CallResultInArena", [](Plan& p) { Call(p).results = {1}; }, "not an extern one"},
    {"CallResultTwice", [](Plan& p) { Call(p).results = {2, 2}; }, "which is in use"},
    {"OutResultUnused",
     [](Plan& p) {
       Call(p).out_overload = "out";
       Call(p).results = {std::nullopt};
     },
     "nobody uses"},
    {"OutResultIsInput",
     [](Plan& p) {
       Call(p).out_overload = "out";
       Call(p).results = {0};
     },
     "not the plan's own"},
    {"SeedIntoFloat", [](Plan& p) { p.steps[0] = SeedStep{1}; }, "no int64"},
    {"SeedIntoInput", [](Plan& p) { p.steps[0] = SeedStep{0}; }, "not the plan's own"},
    {"SeedIntoEmpty", [](Plan& p) { p.buffers[6].sizes = {0}; }, "no int64"},
    {"FreeArena", [](Plan& p) { p.steps.push_back(FreeStep{{1}}); }, "not an extern one"},
    {"FreeTwice", [](Plan& p) { p.steps.push_back(FreeStep{{2}}); }, "holds nothing"},
    {"UseAfterFree", [](Plan& p) { p.steps.push_back(LaunchStep{0, {3}, 1, 1}); }, "holds nothing"},
    {"CopyIntoConstant", [](Plan& p) { p.steps.push_back(CopyStep{0, 5}); }, "into a constant"},
    {"CopyOfOtherSize", [](Plan& p) { p.steps.push_back(CopyStep{0, 6}); }, "unequal sizes"},
    {"OutputMissing", [](Plan& p) { p.outputs[0].buffer = 90; }, "does not exist"},
    {"OutputInArena", [](Plan& p) { p.outputs[0].buffer = 1; }, "in the arena"},
    {"OutputFreed", [](Plan& p) { p.outputs[0].buffer = 3; }, "holds nothing at the end"},
    {"OutputUnusedInput", [](Plan& p) { p.inputs[0].unused = true; }, "unused input"},
};

INSTANTIATE_TEST_SUITE_P(All, BadPlanTest, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PlanTextTest, NamesStepsAndBuffers) {
  Plan plan = GoodPlan();
  plan.kernels[0].name = "fused_add";
  const std::string text = DescribePlan(plan);
  EXPECT_THAT(text, HasSubstr("input 0 %0 float32[2,3]{3,1} input\n"));
  EXPECT_THAT(text, HasSubstr("step 1 launch fused_add (%0, %5, %1) units 6 grain 1\n"));
  EXPECT_THAT(text, HasSubstr("step 2 call aten.relu.default(self=%1) -> %2"));
  EXPECT_THAT(text, HasSubstr("output 2 int 7\noutput 3 None\n"));
}

}  // namespace
}  // namespace stepone::client
