// Graphs that are refused, each for the reason that its file states: errors/*.tg.
#include <string>

#include "absl/status/status.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verifier.h"
#include "compiler/pipeline.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.h"
#include "proto/str_cat.h"
#include "tests/golden/golden_file.h"

namespace stepone {
namespace {

class Errors : public testing::TestWithParam<golden::Case> {};

// What a compile of the text says: reading, checking, passes. Never kInternal, which would be our fault.
absl::Status Check(const std::string& text) {
  auto graph = ir::Parse(text);
  if (!graph.ok()) return graph.status();
  if (const auto violation = ir::Verify(*graph, ir::Stage::kDecomposed)) {
    return InvalidNode(violation->node, violation->rule, violation->message);
  }
  return passes::RunPipeline(*graph, {}, nullptr);
}

TEST_P(Errors, ForTheStatedReason) {
  const golden::Case& c = GetParam();
  ASSERT_FALSE(c.error.empty()) << "no `// expect-error:` line";
  const absl::Status status = Check(c.input);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr(c.error));
}

INSTANTIATE_TEST_SUITE_P(Golden, Errors, testing::ValuesIn(golden::ReadCases(STEPONE_GOLDEN_DIR "/errors")),
                         [](const auto& info) { return golden::TestName(info.param); });

}  // namespace
}  // namespace stepone
