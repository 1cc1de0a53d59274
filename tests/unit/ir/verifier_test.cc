// What text cannot say wrongly; the rest of the rules is in tests/golden/errors/verifier.tg.
#include "compiler/ir/verifier.h"

#include <memory>

#include "compiler/ir/text.h"
#include "gtest/gtest.h"

namespace stepone::ir {
namespace {

Graph Parsed(std::string_view text) {
  auto graph = Parse(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  return *std::move(graph);
}

constexpr char kTwo[] =
    "graph forward\n%0 = input : f32[4]\n%1 = exp %0 : f32[4] from \"first\"\n%2 = neg %1 : f32[4] from \"second\"\n"
    "output %2\n";

TEST(Verifier, AcceptsWhatIsRight) { EXPECT_FALSE(Verify(Parsed(kTwo), Stage::kDecomposed)); }

TEST(Verifier, NamesTheNodeThatUsesAValueTooEarly) {
  Graph graph = Parsed(kTwo);
  graph.set_order({1, 0});
  const auto violation = Verify(graph, Stage::kDecomposed);
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->node, "second");
  EXPECT_EQ(violation->rule, "def-before-use");
}

TEST(Verifier, ANodeStandsInTheOrderOnce) {
  Graph graph = Parsed(kTwo);
  graph.set_order({0, 1, 1});
  EXPECT_EQ(Verify(graph, Stage::kDecomposed)->rule, "redefined");
}

TEST(Verifier, PrimitivesComeAfterDecomposition) { EXPECT_EQ(Verify(Parsed(kTwo), Stage::kImported)->rule, "stage"); }

TEST(Verifier, OutputsAreDefined) {
  Graph graph = Parsed(kTwo);
  graph.set_order({0});
  EXPECT_EQ(Verify(graph, Stage::kDecomposed)->node, "output 0");
}

TEST(Verifier, CallsNameTheirOperandsInOrder) {
  Graph graph = Parsed("graph forward\n%0 = input : f32[4]\n%1 = aten.foo.default(a=%0, b=%0) : f32[4]\noutput %1\n");
  auto call = std::make_shared<Call>(*graph.node(0).call);
  std::swap(call->arguments[0], call->arguments[1]);
  graph.node(0).call = call;
  EXPECT_EQ(Verify(graph, Stage::kImported)->rule, "call");
}

TEST(Verifier, IdsAreInRange) {
  Graph graph = Parsed(kTwo);
  graph.node(1).operands[0] = 99;
  EXPECT_EQ(Verify(graph, Stage::kDecomposed)->rule, "value-id");
}

}  // namespace
}  // namespace stepone::ir
