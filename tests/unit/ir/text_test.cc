#include "compiler/ir/text.h"

#include "gtest/gtest.h"

namespace stepone::ir {
namespace {

// One of everything that the text form can say.
constexpr char kEverything[] = R"(graph backward
%0 = input : f32[8,128] "weight \"w\""
input 7
%1 = input : opaque:other[]
%2 = constant 0x0000803f : f32[1]
%3 = expand %0 : f32[8,128]{0,1} from "expand", "expand_1"
%4 = full {value=-0.0} : f64[]
%5 = full {value=nan} : f32[0,3]
%6 = pad %0 {high=[1,-2], low=[0,0], value=inf} : f32[9,126]
%7, _, %8 = aten.all_kinds.default(a=%0, b=none, c=[%0, none, %2], d=1, e=1.0, f=true, g="text", h=[1,2], i=[1.5, -inf], j=[true, false], k=["a", "b"], l=bf16, m=device("cpu"), n=layout("strided"), o=memory_format("channels_last"), p=complex(1.0, -2.5), q=ints[], r=floats[], s=bools[], t=strings[], u=tensors[], v=1e-05, w=-3) {aliases=[0,-1,-1], mutates=[1], rng, list} : f32[2]{3}, _, i64[] from "node"
output %7
output 5
output none
)";

TEST(Text, RoundTripOfEverything) {
  const auto graph = Parse(kEverything);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Print(*graph), kEverything);
  EXPECT_EQ(graph->role, Role::kBackward);
  EXPECT_EQ(graph->input_numbers[1], 7);
  EXPECT_FALSE(graph->type(graph->inputs[2]).plain);
  EXPECT_EQ(graph->constants[0].data, std::string("\0\0\x80\x3f", 4));
  EXPECT_EQ(graph->outputs[1].number, 5);
}

TEST(Text, CallsKeepTheKindsOfTheirArguments) {
  const auto graph = Parse(kEverything);
  ASSERT_TRUE(graph.ok());
  const Node& node = graph->node(graph->order().back());
  ASSERT_NE(node.call, nullptr);
  EXPECT_EQ(*node.call->Find("a"), ArgumentValue(OperandRef{0}));
  EXPECT_EQ(*node.call->Find("b"), ArgumentValue(NoneArg{}));
  EXPECT_EQ(*node.call->Find("c"), ArgumentValue(OperandList{{1, -1, 2}}));
  EXPECT_EQ(*node.call->Find("d"), ArgumentValue(int64_t{1}));
  EXPECT_EQ(*node.call->Find("e"), ArgumentValue(1.0));
  EXPECT_EQ(*node.call->Find("h"), ArgumentValue(Dims{1, 2}));
  EXPECT_EQ(*node.call->Find("l"), ArgumentValue(DType::kBFloat16));
  EXPECT_EQ(*node.call->Find("p"), ArgumentValue(std::complex<double>(1, -2.5)));
  EXPECT_EQ(node.call->Find("x"), nullptr);
  EXPECT_EQ(node.results[1], kNoValue);
  EXPECT_EQ(graph->value(node.results[2]).result, 2);
  EXPECT_TRUE(node.call->effects());
}

TEST(Text, PrintingRenumbersUnlessToldNotTo) {
  const auto graph =
      Parse("graph forward\n%9 = input : f32[1]\n%4 = exp %9 : f32[1]\n%6 = neg %4 : f32[1]\noutput %6\n");
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(Print(*graph),
            "graph forward\n%0 = input : f32[1]\n%1 = exp %0 : f32[1]\n%2 = neg %1 : f32[1]\noutput %2\n");
  Graph changed = *graph;
  changed.set_order({1});
  changed.node(1).operands[0] = changed.inputs[0];
  EXPECT_EQ(Print(changed), "graph forward\n%0 = input : f32[1]\n%1 = neg %0 : f32[1]\noutput %1\n");
  PrintOptions raw;
  raw.raw_ids = true;
  EXPECT_EQ(Print(changed, raw), "graph forward\n%0 = input : f32[1]\n%2 = neg %0 : f32[1]\noutput %2\n");
}

TEST(Text, NumbersKeepEveryBit) {
  const char text[] =
      "graph forward\n%0 = full {value=0.1} : f64[]\n%1 = full {value=1e+300} : f64[]\n"
      "%2 = full {value=4.9e-324} : f64[]\n%3 = full {value=-9223372036854775808} : i64[]\n";
  const auto graph = Parse(text);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(FloatAttr(graph->node(0), "value"), 0.1);
  EXPECT_EQ(FloatAttr(graph->node(2), "value"), 4.9e-324);
  EXPECT_EQ(IntAttr(graph->node(3), "value"), INT64_MIN);
  EXPECT_EQ(Parse(Print(*graph)).value().num_nodes(), 4);
}

}  // namespace
}  // namespace stepone::ir
