#include "compiler/passes/pass_runner.h"

#include <string>
#include <vector>

#include "compiler/ir/text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.h"

namespace stepone::passes {
namespace {

ir::Graph Sample() {
  return *ir::Parse("graph forward\n%0 = input : f32[4]\n%1 = exp %0 : f32[4]\n%2 = neg %1 : f32[4]\noutput %1\n");
}

absl::StatusOr<bool> Nothing(ir::Graph&, const PassOptions&) { return false; }
absl::StatusOr<bool> Honest(ir::Graph& graph, const PassOptions&) { return graph.RemoveDead(); }
absl::StatusOr<bool> Boaster(ir::Graph&, const PassOptions&) { return true; }
absl::StatusOr<bool> Liar(ir::Graph& graph, const PassOptions&) {
  graph.RemoveDead();
  return false;
}
absl::StatusOr<bool> Breaker(ir::Graph& graph, const PassOptions&) {
  graph.set_order({});
  return true;
}
absl::StatusOr<bool> Refuses(ir::Graph&, const PassOptions&) {
  return InvalidNode("mul_3", "sizes", "they do not fit");
}

absl::Status RunOne(absl::StatusOr<bool> (*run)(ir::Graph&, const PassOptions&),
                    std::vector<PassRecord>* records = nullptr, std::vector<std::string>* dumps = nullptr) {
  ir::Graph graph = Sample();
  RunnerOptions options;
  options.check_changed = true;
  if (dumps != nullptr) {
    options.dump = [dumps](std::string_view pass, const ir::Graph&) { dumps->push_back(std::string(pass)); };
  }
  const Pass passes[] = {{"before", Nothing, ir::Stage::kDecomposed, ""}, {"tested", run, ir::Stage::kDecomposed, ""}};
  return RunPasses(graph, passes, options, records);
}

TEST(PassRunner, RecordsAndDumpsWhatChanged) {
  std::vector<PassRecord> records;
  std::vector<std::string> dumps;
  ASSERT_TRUE(RunOne(Honest, &records, &dumps).ok());
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].name, "tested");
  EXPECT_TRUE(records[1].changed);
  EXPECT_EQ(records[0].nodes_after, 2);
  EXPECT_EQ(records[1].nodes_after, 1);
  EXPECT_EQ(dumps, std::vector<std::string>({"tested"}));
}

TEST(PassRunner, CatchesPassesThatAreWrongAboutChanged) {
  for (const auto run : {Boaster, Liar}) {
    const absl::Status status = RunOne(run);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(ToErrorDetail(status).pass(), "tested");
    EXPECT_EQ(ToErrorDetail(status).rule(), "changed");
  }
}

TEST(PassRunner, NamesThePassThatBreaksTheGraph) {
  const absl::Status status = RunOne(Breaker);
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ToErrorDetail(status).pass(), "tested");
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("after pass tested"));
}

TEST(PassRunner, KeepsTheNodeAndAddsThePassToARefusal) {
  const absl::Status status = RunOne(Refuses);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ToErrorDetail(status).pass(), "tested");
  EXPECT_EQ(ToErrorDetail(status).node(), "mul_3");
  EXPECT_EQ(ToErrorDetail(status).rule(), "sizes");
}

}  // namespace
}  // namespace stepone::passes
