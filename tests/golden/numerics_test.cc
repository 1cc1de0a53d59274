// Decompositions against eager torch: numerics/*.tg hold calls and what torch gave (see make_numerics.py).
#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "compiler/ir/text.h"
#include "compiler/pipeline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/golden/golden_file.h"
#include "tests/testlib/evaluator.h"

namespace stepone {
namespace {

using ir::DType;

class Numerics : public testing::TestWithParam<golden::Case> {};

// Of one rounding: torch's vectors and the evaluator's double precision may differ in the last place.
double Tolerance(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 1e-11;
    case DType::kFloat32:
      return 2e-6;
    case DType::kFloat16:
      return 1e-3;
    default:
      return 8e-3;
  }
}

void ExpectSame(const testlib::Tensor& got, const testlib::Tensor& expected, bool elementwise) {
  ASSERT_EQ(got.dtype, expected.dtype);
  ASSERT_EQ(got.sizes, expected.sizes);
  EXPECT_EQ(got.integers, expected.integers);
  double scale = 1e-2;
  for (const double value : expected.reals) {
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value) * 0.1);
  }
  int different = 0;
  for (size_t i = 0; i < expected.reals.size(); ++i) {
    const double a = got.reals[i], b = expected.reals[i];
    if (std::isnan(b) || std::isinf(b)) {
      EXPECT_TRUE(std::isnan(b) ? std::isnan(a) : a == b) << "element " << i << ": " << a << ", torch gives " << b;
    } else {
      EXPECT_NEAR(a, b, Tolerance(got.dtype) * std::max(std::abs(b), scale)) << "element " << i;
    }
    different += !(a == b || (std::isnan(a) && std::isnan(b)));
  }
  // 16-bit floats hide nothing: a rounding in another place shows in many elements. Sums differ by their order.
  if (elementwise && (got.dtype == DType::kBFloat16 || got.dtype == DType::kFloat16)) {
    EXPECT_LE(different, std::max<int>(1, static_cast<int>(expected.reals.size()) / 8)) << "elements that differ";
  }
}

TEST_P(Numerics, AsTorch) {
  auto graph = ir::Parse(GetParam().input);
  ASSERT_TRUE(graph.ok()) << graph.status();
  ASSERT_FALSE(ir::Verify(*graph, ir::Stage::kImported)) << ir::Verify(*graph, ir::Stage::kImported)->message;
  passes::PipelineOptions options;
  options.runner.check_changed = true;
  const absl::Status status = passes::RunPipeline(*graph, options, nullptr);
  ASSERT_TRUE(status.ok()) << status;
  const auto results = testlib::Evaluate(*graph, {});
  const std::set<std::string> elementwise_files = {"activations", "arithmetic", "comparisons", "unary"};
  const bool elementwise = elementwise_files.count(GetParam().file) > 0;
  ASSERT_TRUE(results.ok()) << results.status();
  for (size_t i = 0; i + 1 < results->size(); i += 2) {
    SCOPED_TRACE(testing::Message() << "result " << i / 2);
    ExpectSame((*results)[i], (*results)[i + 1], elementwise);
  }
}

INSTANTIATE_TEST_SUITE_P(Decompositions, Numerics, testing::ValuesIn(golden::ReadCases(STEPONE_GOLDEN_DIR "/numerics")),
                         [](const auto& info) { return golden::TestName(info.param); });

}  // namespace
}  // namespace stepone
