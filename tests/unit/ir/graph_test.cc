#include "compiler/ir/graph.h"

#include <memory>

#include "compiler/ir/structural_hash.h"
#include "compiler/ir/text.h"
#include "gtest/gtest.h"

namespace stepone::ir {
namespace {

Graph Parsed(std::string_view text) {
  auto graph = Parse(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

constexpr char kChain[] =
    "graph forward\n%0 = input : f32[4]\n%1 = exp %0 : f32[4]\n%2 = add %1, %1 : f32[4]\n%3 = neg %1 : f32[4]\n"
    "output %2\n";

TEST(Graph, UsersAreListedOnceEach) {
  const Graph graph = Parsed(kChain);
  const auto users = graph.Users();
  EXPECT_EQ(users[0], std::vector<NodeId>({0}));
  EXPECT_EQ(users[1], std::vector<NodeId>({1, 2}));
  EXPECT_TRUE(users[2].empty());
}

TEST(Graph, ReplaceUsesReachesOperandsAndOutputs) {
  Graph graph = Parsed(kChain);
  graph.ReplaceUses(1, 0);
  graph.ReplaceUses(2, 3);
  EXPECT_EQ(graph.node(1).operands, std::vector<ValueId>({0, 0}));
  EXPECT_EQ(graph.outputs[0].value, 3);
}

TEST(Graph, RemoveDeadSaysWhetherThereWereAny) {
  Graph graph = Parsed(kChain);
  EXPECT_TRUE(graph.RemoveDead());
  EXPECT_EQ(graph.order(), std::vector<NodeId>({0, 1}));
  EXPECT_FALSE(graph.RemoveDead());
}

TEST(Graph, ReferencesSurviveGrowth) {
  Graph graph = Parsed(kChain);
  const Dims& sizes = graph.type(0).sizes;
  for (int i = 0; i < 1000; ++i) graph.Add(Op::kNeg, {0}, Contiguous(DType::kFloat32, {4}));
  EXPECT_EQ(sizes, Dims({4}));
}

TEST(StructuralHash, IgnoresIdsAndNamesOnly) {
  const Graph a = Parsed(kChain);
  Graph b = Parsed(
      "graph forward\n%5 = input : f32[4] \"x\"\n%7 = exp %5 : f32[4] from \"exp\"\n%6 = add %7, %7 : f32[4]\n"
      "%8 = neg %7 : f32[4]\noutput %6\n");
  EXPECT_EQ(StructuralHash(a), StructuralHash(b));
  b.value(b.inputs[0]).type.strides = {2};
  EXPECT_NE(StructuralHash(a), StructuralHash(b));
}

TEST(Types, ContiguityAndExtent) {
  EXPECT_EQ(ContiguousStrides({2, 0, 3}), Dims({3, 3, 1}));
  EXPECT_EQ(Contiguous(DType::kInt8, {}).NumElements(), 1);
  TensorType type = Contiguous(DType::kFloat32, {2, 1, 3});
  EXPECT_EQ(ToString(type), "f32[2,1,3]");
  type.strides = {3, 77, 1};  // a size-1 dim's stride means nothing
  EXPECT_TRUE(IsContiguous(type));
  type.strides = {1, 1, 2};
  EXPECT_FALSE(IsContiguous(type));
  EXPECT_EQ(StorageExtent(type), 6);
  EXPECT_EQ(ToString(type), "f32[2,1,3]{1,1,2}");
  EXPECT_EQ(StorageExtent(Contiguous(DType::kFloat32, {0, 5})), 0);
}

}  // namespace
}  // namespace stepone::ir
