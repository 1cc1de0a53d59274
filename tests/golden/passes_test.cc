// Passes as text in, text out: passes/*.tg.
#include <string>
#include <vector>

#include "compiler/ir/text.h"
#include "compiler/ir/verifier.h"
#include "compiler/pipeline.h"
#include "gtest/gtest.h"
#include "tests/golden/golden_file.h"

namespace stepone {
namespace {

class Passes : public testing::TestWithParam<golden::Case> {};

std::string Normal(const std::string& text) {
  const auto graph = ir::Parse(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return graph.ok() ? ir::Print(*graph) : "";
}

TEST_P(Passes, AsWritten) {
  const golden::Case& c = GetParam();
  ASSERT_FALSE(c.passes.empty()) << "no `// pass:` line";
  ASSERT_NE(c.unchanged, !c.expected.empty()) << "either `// expect` or `// unchanged`";
  auto graph = ir::Parse(c.input);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto violation = ir::Verify(*graph, ir::Stage::kDecomposed);
  ASSERT_FALSE(violation) << violation->rule << ": " << violation->message;
  std::vector<passes::Pass> chosen;
  for (const std::string& name : c.passes) {
    const passes::Pass* pass = passes::FindPass(name);
    ASSERT_NE(pass, nullptr) << name;
    chosen.push_back(*pass);
    chosen.back().stage_after = ir::Stage::kDecomposed;
  }
  passes::RunnerOptions options;
  options.check_changed = true;
  std::vector<passes::PassRecord> records;
  const absl::Status status = passes::RunPasses(*graph, chosen, options, &records);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ir::Print(*graph), Normal(c.unchanged ? c.input : c.expected));
  if (c.unchanged) {
    for (const passes::PassRecord& record : records) EXPECT_FALSE(record.changed) << record.name;
  }
  // Again changes nothing more.
  if (chosen.size() == 1) {
    records.clear();
    ASSERT_TRUE(passes::RunPasses(*graph, chosen, options, &records).ok());
    EXPECT_FALSE(records[0].changed) << "the pass is not idempotent:\n" << ir::Print(*graph);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Passes, testing::ValuesIn(golden::ReadCases(STEPONE_GOLDEN_DIR "/passes")),
                         [](const auto& info) { return golden::TestName(info.param); });

}  // namespace
}  // namespace stepone
