#include "compiler/import/import_graph.h"

#include <string>

#include "compiler/ir/text.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "proto/status.h"

namespace stepone::import {
namespace {

using testing::HasSubstr;

v1::Graph Proto(const std::string& text) {
  v1::Graph graph;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &graph));
  return graph;
}

// %0, %1: f32[2,3] inputs; %2 = add; %3 = relu of it, the output.
constexpr char kGood[] = R"pb(
  role: ROLE_FORWARD
  values {
    tensor {
      dtype: DTYPE_FLOAT32
      sizes { value: 2 }
      sizes { value: 3 }
      strides { value: 3 }
      strides { value: 1 }
      device { type: "cpu" }
    }
    name: "x"
  }
  values {
    tensor {
      dtype: DTYPE_FLOAT32
      sizes { value: 2 }
      sizes { value: 3 }
      strides { value: 3 }
      strides { value: 1 }
      device { type: "cpu" }
    }
    name: "y"
  }
  values {
    tensor {
      dtype: DTYPE_FLOAT32
      sizes { value: 2 }
      sizes { value: 3 }
      strides { value: 3 }
      strides { value: 1 }
      device { type: "cpu" }
    }
  }
  values {
    tensor {
      dtype: DTYPE_FLOAT32
      sizes { value: 2 }
      sizes { value: 3 }
      strides { value: 3 }
      strides { value: 1 }
      device { type: "cpu" }
    }
  }
  inputs: [ 0, 1 ]
  nodes {
    op: "aten.add.Tensor"
    name: "add"
    arguments { name: "self" value: 0 }
    arguments { name: "other" value: 1 }
    arguments {
      name: "alpha"
      int_value { value: 1 }
    }
    results: 3
  }
  nodes {
    op: "aten.relu.default"
    name: "relu"
    arguments { name: "self" value: 2 }
    results: 4
  }
  outputs { value: 3 }
)pb";

void ExpectRefused(const v1::Graph& graph, const std::string& node, const std::string& rule) {
  const auto imported = ImportGraph(graph);
  ASSERT_FALSE(imported.ok());
  EXPECT_EQ(imported.status().code(), absl::StatusCode::kInvalidArgument) << imported.status();
  const v1::ErrorDetail detail = ToErrorDetail(imported.status());
  EXPECT_EQ(detail.node(), node) << imported.status();
  EXPECT_EQ(detail.rule(), rule) << imported.status();
}

TEST(ImportGraph, CallsBecomeCalls) {
  const auto graph = ImportGraph(Proto(kGood));
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(ir::Print(*graph),
            "graph forward\n%0 = input : f32[2,3] \"x\"\n%1 = input : f32[2,3] \"y\"\n"
            "%2 = aten.add.Tensor(self=%0, other=%1, alpha=1) : f32[2,3] from \"add\"\n"
            "%3 = aten.relu.default(self=%2) : f32[2,3] from \"relu\"\noutput %3\n");
}

TEST(ImportGraph, NumbersAreNumbers) {
  v1::Graph proto = Proto(kGood);
  proto.add_values()->mutable_sym_int()->set_value(7);
  proto.add_inputs(4);
  auto* argument = proto.mutable_nodes(0)->mutable_arguments(2);
  argument->set_value(4);
  proto.add_outputs()->set_value(4);
  proto.add_outputs()->mutable_int_value()->set_value(9);
  proto.add_outputs()->set_none(true);
  const auto graph = ImportGraph(proto);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->inputs[2], ir::kNoValue);
  EXPECT_EQ(graph->input_numbers[2], 7);
  EXPECT_EQ(*graph->node(0).call->Find("alpha"), ir::ArgumentValue(int64_t{7}));
  EXPECT_EQ(graph->outputs[1].number, 7);
  EXPECT_EQ(graph->outputs[2].number, 9);
  EXPECT_EQ(graph->outputs[3].value, ir::kNoValue);
}

TEST(ImportGraph, WhatIsNoPlainTensorIsOpaque) {
  v1::Graph proto = Proto(kGood);
  proto.add_values()->set_host_scalar(true);
  auto* sparse = proto.add_values()->mutable_tensor();
  sparse->set_dtype(v1::DTYPE_FLOAT32);
  sparse->set_layout("sparse_coo");
  sparse->add_sizes()->set_value(4);
  sparse->mutable_device()->set_type("cpu");
  proto.add_inputs(4);
  proto.add_inputs(5);
  const auto graph = ImportGraph(proto);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_FALSE(graph->type(graph->inputs[2]).plain);
  EXPECT_FALSE(graph->type(graph->inputs[3]).plain);
  EXPECT_TRUE(graph->type(graph->inputs[0]).plain);
}

TEST(ImportGraph, UnusedResultsAliasesAndMutations) {
  v1::Graph proto = Proto(kGood);
  auto* node = proto.mutable_nodes(0);
  node->add_results(0);
  node->add_result_aliases(2);
  node->add_result_aliases(0);
  node->add_mutated_values(0);
  const auto graph = ImportGraph(proto);
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(graph->node(0).results[1], ir::kNoValue);
  EXPECT_EQ(graph->node(0).call->result_aliases, std::vector<int32_t>({1, -1}));
  EXPECT_EQ(graph->node(0).call->mutated_operands, std::vector<int32_t>({0}));
}

TEST(ImportGraph, ConstantsHaveTheBytesOfTheirType) {
  v1::Graph proto = Proto(kGood);
  proto.mutable_inputs()->RemoveLast();
  auto* constant = proto.add_constants();
  constant->set_value(1);
  constant->set_data(std::string(24, '\0'));
  EXPECT_TRUE(ImportGraph(proto).ok());
  constant->set_data("short");
  ExpectRefused(proto, "constant 0", "constant");
}

TEST(ImportGraph, SymbolsMustBeSpecialised) {
  v1::Graph proto = Proto(kGood);
  proto.mutable_values(0)->mutable_tensor()->mutable_sizes(0)->set_expr("(* s0 2)");
  const auto graph = ImportGraph(proto);
  EXPECT_EQ(graph.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(graph.status().message()), HasSubstr("(* s0 2)"));
}

TEST(ImportGraph, RefusesValuesThatAreNotThere) {
  v1::Graph proto = Proto(kGood);
  proto.mutable_nodes(0)->mutable_arguments(1)->set_value(99);
  ExpectRefused(proto, "add", "value-index");
  proto = Proto(kGood);
  proto.mutable_nodes(0)->set_results(0, 77);
  ExpectRefused(proto, "add", "value-index");
  proto = Proto(kGood);
  proto.mutable_outputs(0)->set_value(12);
  ExpectRefused(proto, "output 0", "value-index");
  proto = Proto(kGood);
  proto.set_inputs(1, 50);
  ExpectRefused(proto, "input 1", "value-index");
}

TEST(ImportGraph, RefusesUsesBeforeDefinitions) {
  v1::Graph proto = Proto(kGood);
  proto.mutable_nodes()->SwapElements(0, 1);
  ExpectRefused(proto, "relu", "def-before-use");
  proto = Proto(kGood);
  proto.mutable_inputs()->RemoveLast();
  ExpectRefused(proto, "add", "def-before-use");
}

TEST(ImportGraph, RefusesCyclesAndSaysSo) {
  v1::Graph proto = Proto(kGood);
  proto.mutable_nodes(0)->mutable_arguments(1)->set_value(3);
  ExpectRefused(proto, "add", "cycle");
  proto.mutable_nodes(0)->mutable_arguments(1)->set_value(2);
  ExpectRefused(proto, "add", "cycle");
}

TEST(ImportGraph, RefusesTwoDefinitions) {
  v1::Graph proto = Proto(kGood);
  proto.mutable_nodes(1)->set_results(0, 3);
  ExpectRefused(proto, "relu", "redefined");
  proto = Proto(kGood);
  proto.set_inputs(1, 0);
  ExpectRefused(proto, "input 1", "redefined");
}

TEST(ImportGraph, RefusesOpNamesThatNoDispatcherHolds) {
  for (const char* name :
       {"", "aten.add", "aten.add.Tensor.extra", "aten..Tensor", "aten.add Tensor.x", "9a.b.c", "a.b.c;d"}) {
    v1::Graph proto = Proto(kGood);
    proto.mutable_nodes(0)->set_op(name);
    ExpectRefused(proto, "add", "op-name");
  }
  v1::Graph proto = Proto(kGood);
  proto.mutable_nodes(0)->set_op("my_library.frobnicate.default");
  EXPECT_TRUE(ImportGraph(proto).ok());
}

TEST(ImportGraph, RefusesTypesThatCannotBe) {
  v1::Graph proto = Proto(kGood);
  proto.mutable_values(0)->mutable_tensor()->mutable_strides()->RemoveLast();
  ExpectRefused(proto, "input 0", "type");
  proto = Proto(kGood);
  proto.mutable_values(2)->mutable_tensor()->mutable_sizes(0)->set_value(-2);
  ExpectRefused(proto, "add", "type");
  proto = Proto(kGood);
  proto.mutable_values(2)->mutable_tensor()->set_dtype(v1::DTYPE_UNSPECIFIED);
  ExpectRefused(proto, "add", "type");
  proto = Proto(kGood);
  proto.mutable_values(2)->clear_type();
  ExpectRefused(proto, "add", "type");
  proto = Proto(kGood);
  for (int i = 0; i < 2; ++i) proto.mutable_values(1)->mutable_tensor()->mutable_sizes(i)->set_value(int64_t{1} << 40);
  ExpectRefused(proto, "input 1", "type");
}

TEST(ImportGraph, RefusesArgumentsThatContradict) {
  v1::Graph proto = Proto(kGood);
  proto.mutable_nodes(0)->mutable_arguments(1)->set_name("self");
  ExpectRefused(proto, "add", "argument");
  proto = Proto(kGood);
  auto* list = proto.mutable_nodes(0)->mutable_arguments(1)->mutable_value_list();
  list->add_values(0);
  ExpectRefused(proto, "add", "argument");
  proto = Proto(kGood);
  proto.mutable_nodes(0)->add_mutated_values(3);
  ExpectRefused(proto, "add", "aliases");
}

TEST(ImportGraph, AnEmptyRequestHasNoRole) { ExpectRefused(v1::Graph(), "graph", "role"); }

}  // namespace
}  // namespace stepone::import
