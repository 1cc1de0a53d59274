// What the golden files (tests/golden) cannot show: options, coverage, random streams.
#include "compiler/passes/decompose.h"

#include <set>
#include <string>
#include <vector>

#include "compiler/ir/text.h"
#include "compiler/pipeline.h"
#include "gtest/gtest.h"

namespace stepone::passes {
namespace {

ir::Graph Parsed(std::string_view text) {
  auto graph = ir::Parse(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

int Count(const ir::Graph& graph, ir::Op op) {
  int count = 0;
  for (const ir::NodeId id : graph.order()) count += graph.node(id).op == op;
  return count;
}

constexpr char kTwoDropouts[] =
    "graph forward\n%0 = input : f32[4]\n"
    "%1, %2 = aten.native_dropout.default(input=%0, p=0.1, train=true) {rng} : f32[4], b1[4] from \"one\"\n"
    "%3, %4 = aten.native_dropout.default(input=%1, p=0.1, train=true) {rng} : f32[4], b1[4] from \"two\"\n"
    "output %3\noutput %2\noutput %4\n";

TEST(Decompose, EachDropoutHasAStreamAndTheGraphOneSeed) {
  ir::Graph graph = Parsed(kTwoDropouts);
  ASSERT_TRUE(RunPipeline(graph, {}, nullptr).ok());
  EXPECT_EQ(Count(graph, ir::Op::kSeed), 1);
  EXPECT_EQ(Count(graph, ir::Op::kAten), 0);
  std::vector<int64_t> streams;
  for (const ir::NodeId id : graph.order()) {
    if (graph.node(id).op == ir::Op::kRandom) streams.push_back(IntAttr(graph.node(id), "stream"));
  }
  EXPECT_EQ(streams, std::vector<int64_t>({0, 1}));
}

TEST(Decompose, FallbackRandomLeavesDrawsToTheFramework) {
  ir::Graph graph = Parsed(kTwoDropouts);
  PipelineOptions options;
  options.fallback_random = true;
  ASSERT_TRUE(RunPipeline(graph, options, nullptr).ok());
  EXPECT_EQ(Count(graph, ir::Op::kSeed), 0);
  EXPECT_EQ(Count(graph, ir::Op::kAten), 2);
}

TEST(Decompose, SameTextGivesSameText) {
  ir::Graph a = Parsed(kTwoDropouts), b = Parsed(kTwoDropouts);
  ASSERT_TRUE(RunPipeline(a, {}, nullptr).ok());
  ASSERT_TRUE(RunPipeline(b, {}, nullptr).ok());
  EXPECT_EQ(ir::Print(a), ir::Print(b));
}

TEST(Decompose, KeepsCallsThatItDoesNotKnowOrMust) {
  const char text[] =
      "graph forward\n%0 = input : f32[4,4]\n%1 = input : c64[4]\n%2 = input : opaque:other[]\n"
      "%3 = aten.mm.default(self=%0, mat2=%0) : f32[4,4]\n"
      "%4 = site.own_op.default(x=%0) : f32[4,4]\n"
      "%5 = aten.mul.Tensor(self=%1, other=2.0) : c64[4]\n"
      "%6 = aten.mul.Tensor(self=%0, other=%2) : f32[4,4]\n"
      "_ = aten.add_.Tensor(self=%0, other=%3, alpha=1) {mutates=[0]} : _\n"
      "output %3\noutput %4\noutput %5\noutput %6\n";
  ir::Graph graph = Parsed(text);
  ASSERT_TRUE(RunPipeline(graph, {}, nullptr).ok());
  EXPECT_EQ(ir::Print(graph), text);
}

TEST(Decompose, ResultsWithoutElementsNeedNoCall) {
  ir::Graph graph =
      Parsed("graph forward\n%0 = input : f32[0,4]\n%1 = aten.mm.default(self=%0, mat2=%0) : f32[0,4]\noutput %1\n");
  ASSERT_TRUE(RunPipeline(graph, {}, nullptr).ok());
  EXPECT_EQ(Count(graph, ir::Op::kAten), 0);
  EXPECT_EQ(graph.type(graph.outputs[0].value).sizes, ir::Dims({0, 4}));
}

TEST(Decompose, OutputsKeepTheTracedLayout) {
  ir::Graph graph = Parsed(
      "graph forward\n%0 = input : f32[4,8]{1,4}\n%1 = aten.exp.default(self=%0) : f32[4,8]{1,4}\n"
      "%2 = aten.t.default(self=%1) {aliases=[0]} : f32[8,4]\noutput %1\noutput %2\n");
  ASSERT_TRUE(RunPipeline(graph, {}, nullptr).ok());
  EXPECT_EQ(graph.type(graph.outputs[0].value).strides, ir::Dims({1, 4}));
  EXPECT_EQ(graph.type(graph.outputs[1].value).strides, ir::Dims({4, 1}));
}

TEST(Decompose, AnAliasOfAnInputStaysOneAndACloneDoesNot) {
  ir::Graph graph = Parsed(
      "graph forward\n%0 = input : f32[4]\n%1 = aten.detach.default(self=%0) {aliases=[0]} : f32[4]\n"
      "%2 = aten.clone.default(self=%0, memory_format=none) : f32[4]\noutput %1\noutput %2\n");
  ASSERT_TRUE(RunPipeline(graph, {}, nullptr).ok());
  EXPECT_EQ(graph.outputs[0].value, graph.inputs[0]);
  const ir::ValueId clone = graph.outputs[1].value;
  EXPECT_NE(clone, graph.inputs[0]);
  EXPECT_EQ(graph.node(graph.value(clone).producer).op, ir::Op::kCopy);
}

// The ops of 21 training workloads that are left to ATen, and no others.
TEST(Decompose, CoversTheOpsOfRealTraining) {
  for (const char* op : {"aten.view.default",
                         "aten.add.Tensor",
                         "aten.sum.dim_IntList",
                         "aten.native_layer_norm.default",
                         "aten.native_layer_norm_backward.default",
                         "aten.native_dropout.default",
                         "aten.gelu_backward.default",
                         "aten._native_batch_norm_legit_functional.default",
                         "aten.native_batch_norm_backward.default",
                         "aten._softmax_backward_data.default",
                         "aten.embedding.default",
                         "aten.embedding_dense_backward.default",
                         "aten._safe_softmax.default",
                         "aten._log_softmax.default",
                         "aten._log_softmax_backward_data.default",
                         "aten.nll_loss_forward.default",
                         "aten.nll_loss_backward.default",
                         "aten.select_backward.default",
                         "aten.silu_backward.default",
                         "aten.masked_fill.Scalar",
                         "aten.constant_pad_nd.default",
                         "aten.repeat.default",
                         "aten._unsafe_index.Tensor",
                         "aten.scatter_add.default",
                         "aten.native_group_norm.default",
                         "aten.native_group_norm_backward.default",
                         "aten.index_add.default",
                         "aten.slice_scatter.default",
                         "aten.select_scatter.default",
                         "aten.slice_backward.default",
                         "aten.tril.default",
                         "aten.copy.default"}) {
    EXPECT_TRUE(HasDecomposition(op)) << op;
  }
  for (const char* op : {"aten.mm.default", "aten.addmm.default", "aten.bmm.default", "aten.baddbmm.default",
                         "aten.convolution.default", "aten._scaled_dot_product_flash_attention_for_cpu.default",
                         "aten.max_pool2d_with_indices.default", "aten.cumsum.default"}) {
    EXPECT_FALSE(HasDecomposition(op)) << op;
  }
}

TEST(Pipeline, NamesAreUniqueAndReasonsGiven) {
  std::set<std::string_view> names;
  for (const Pass& pass : Pipeline()) {
    EXPECT_TRUE(names.insert(pass.name).second) << pass.name;
    EXPECT_FALSE(pass.why_here.empty()) << pass.name;
    EXPECT_EQ(FindPass(pass.name), &pass);
  }
  EXPECT_EQ(FindPass("no_such_pass"), nullptr);
}

}  // namespace
}  // namespace stepone::passes
