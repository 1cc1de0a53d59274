#include "tests/unit/loops/fuse_test_support.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "compiler/ir/text.h"
#include "compiler/ir/verifier.h"
#include "compiler/planning/plan_memory.h"
#include "gtest/gtest.h"
#include "proto/str_cat.h"
#include "tests/testlib/kernel_interpreter.h"

namespace stepone::loops {

using testlib::Tensor;

uint64_t TestGraph::Next() {
  random_ += 0x9e3779b97f4a7c15u;
  uint64_t x = random_;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int64_t TestGraph::Pick(int64_t low, int64_t high) {
  return low + static_cast<int64_t>(Next() % static_cast<uint64_t>(high - low + 1));
}

ir::Expr TestGraph::Input(ir::DType dtype, ir::Dims sizes, int64_t low, int64_t high) {
  ir::TensorType type = ir::Contiguous(dtype, sizes);
  const ir::ValueId id = graph.AddValue(type, StrCat("x", graph.inputs.size()));
  graph.inputs.push_back(id);
  graph.input_numbers.emplace_back();
  std::vector<double> values(static_cast<size_t>(type.NumElements()));
  for (double& value : values) {
    if (ir::IsFloat(dtype)) {
      value = static_cast<double>(Next() >> 11) * 0x1p-53 * 4 - 2;
    } else {
      value = static_cast<double>(dtype == ir::DType::kBool ? Pick(0, 1) : Pick(low, high - 1));
    }
  }
  inputs.push_back(testlib::MakeTensor(dtype, std::move(sizes), values));
  return builder.Wrap(id);
}

ir::Expr TestGraph::InputWithStrides(ir::DType dtype, ir::Dims sizes, ir::Dims strides) {
  const ir::Expr input = Input(dtype, std::move(sizes));
  graph.value(input.id).type.strides = std::move(strides);
  return input;
}

void TestGraph::Output(ir::Expr value) { graph.outputs.push_back(ir::Output{value.id, std::nullopt}); }

int Launches(const Program& program) {
  return static_cast<int>(std::count_if(program.steps.begin(), program.steps.end(),
                                        [](const Step& step) { return std::holds_alternative<Launch>(step); }));
}

std::string Describe(const Program& program) {
  std::string text;
  for (const Step& step : program.steps) {
    if (const auto* launch = std::get_if<Launch>(&step)) {
      text += ToString(launch->kernel);
      for (size_t b = 0; b < launch->buffers.size(); ++b)
        text += StrCat("  b", b, " is buffer ", launch->buffers[b], "\n");
    } else {
      text += "extern or seed\n";
    }
  }
  for (const FusionDecision& decision : program.decisions) {
    text += StrCat(decision.taken ? "fused " : "kept apart ", decision.first, " and ", decision.second, ": ",
                   decision.score_bytes, " ", decision.reason, "\n");
  }
  return text;
}

namespace {

bool Near(ir::DType dtype, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  const double relative = dtype == ir::DType::kFloat64 ? 1e-10 : dtype == ir::DType::kFloat32 ? 2e-5 : 2e-2;
  return std::fabs(a - b) <= relative * std::max({1.0, std::fabs(a), std::fabs(b)});
}

void ExpectNear(const Tensor& expected, const Tensor& actual, size_t output) {
  ASSERT_EQ(expected.sizes, actual.sizes) << "output " << output;
  ASSERT_EQ(expected.dtype, actual.dtype) << "output " << output;
  ASSERT_EQ(expected.integers, actual.integers) << "output " << output;
  for (size_t i = 0; i < expected.reals.size(); ++i) {
    ASSERT_TRUE(Near(expected.dtype, expected.reals[i], actual.reals[i]))
        << "output " << output << " element " << i << ": " << expected.reals[i] << " became " << actual.reals[i];
  }
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.integers == b.integers && a.reals.size() == b.reals.size() &&
         std::memcmp(a.reals.data(), b.reals.data(), a.reals.size() * sizeof(double)) == 0;
}

// Temporaries that share the arena as planned, in place of each other or not, change no bit.
void ExpectSameInArena(const TestGraph& test, const Program& program, int64_t seed,
                       const std::vector<Tensor>& expected) {
  int64_t apart_bytes = 0;
  for (bool in_place : {false, true}) {
    SCOPED_TRACE(in_place ? "in place" : "not in place");
    const planning::MemoryPlan plan = planning::PlanMemory(test.graph, program, {.in_place = in_place});
    if (!in_place) apart_bytes = plan.arena_bytes;
    EXPECT_LE(plan.arena_bytes, apart_bytes);
    const auto actual = testlib::RunProgram(test.graph, program, test.inputs, seed, &plan);
    ASSERT_TRUE(actual.ok()) << actual.status().message();
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(SameBits(expected[i], (*actual)[i])) << "output " << i;
  }
}

}  // namespace

void ExpectSameAsGraph(const TestGraph& test, const Program& program) {
  SCOPED_TRACE(ir::Print(test.graph) + Describe(program));
  ASSERT_EQ(program.error, "");
  for (const Step& step : program.steps) {
    const auto* launch = std::get_if<Launch>(&step);
    ASSERT_EQ(launch == nullptr ? "" : Verify(launch->kernel), "");
  }
  constexpr int64_t kSeed = 1234567;
  const auto expected = testlib::Evaluate(test.graph, test.inputs, kSeed);
  const auto actual = testlib::RunProgram(test.graph, program, test.inputs, kSeed);
  if (!expected.ok()) {
    EXPECT_EQ(actual.status().code(), expected.status().code()) << expected.status().message();
    return;
  }
  ASSERT_TRUE(actual.ok()) << actual.status().message();
  ASSERT_EQ(actual->size(), expected->size());
  for (size_t i = 0; i < expected->size(); ++i) ExpectNear((*expected)[i], (*actual)[i], i);
  ExpectSameInArena(test, program, kSeed, *actual);
}

int WrittenInPlace(const TestGraph& test, const Program& program) {
  const std::vector<BufferId> in_place_of = planning::PlanMemory(test.graph, program).in_place_of;
  return static_cast<int>(std::count_if(in_place_of.begin(), in_place_of.end(), [](BufferId b) { return b >= 0; }));
}

Program FuseAndCheck(const TestGraph& test) {
  EXPECT_FALSE(test.builder.failed()) << test.builder.failure();
  const auto violation = ir::Verify(test.graph, ir::Stage::kDecomposed);
  EXPECT_FALSE(violation.has_value()) << violation->message;
  FuseOptions apart;
  apart.disable_fusion = true;
  ExpectSameAsGraph(test, Fuse(test.graph, apart));
  Program program = Fuse(test.graph, FuseOptions{});
  ExpectSameAsGraph(test, program);
  return program;
}

}  // namespace stepone::loops
