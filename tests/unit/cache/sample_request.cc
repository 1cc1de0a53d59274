#include "tests/unit/cache/sample_request.h"

#include <cstdint>
#include <string>
#include <vector>

namespace stepone {
namespace {

v1::Value* AddTensor(v1::Graph& graph, v1::DType dtype, const std::vector<int64_t>& sizes) {
  v1::Value* value = graph.add_values();
  value->set_name(std::to_string(graph.values_size()));
  v1::TensorType* type = value->mutable_tensor();
  type->set_dtype(dtype);
  int64_t stride = 1;
  for (int64_t size : sizes) stride *= size;
  for (int64_t size : sizes) {
    type->add_sizes()->set_value(size);
    stride /= size;
    type->add_strides()->set_value(stride);
  }
  type->mutable_device()->set_type("cpu");
  type->mutable_device()->set_index(0);
  return value;
}

v1::Node* AddNode(v1::Graph& graph, const std::string& op, const std::vector<uint32_t>& results) {
  v1::Node* node = graph.add_nodes();
  node->set_op(op);
  for (uint32_t result : results) node->add_results(result);
  node->set_name(std::to_string(graph.nodes_size()));
  node->set_diagnostics("model.py:12");
  return node;
}

v1::Argument* AddArgument(v1::Node* node, const std::string& name) {
  v1::Argument* argument = node->add_arguments();
  argument->set_name(name);
  return argument;
}

// One argument of each kind that is no value.
void AddAllKinds(v1::Node* node) {
  AddArgument(node, "none");
  AddArgument(node, "int")->mutable_int_value()->set_value(3);
  AddArgument(node, "int_expr")->mutable_int_value()->set_expr("(* s0 2)");
  AddArgument(node, "float")->set_float_value(0.5);
  AddArgument(node, "bool")->set_bool_value(true);
  AddArgument(node, "string")->set_string_value("none");
  AddArgument(node, "int_list")->mutable_int_list()->add_values()->set_value(7);
  AddArgument(node, "float_list")->mutable_float_list()->add_values(1.25);
  AddArgument(node, "bool_list")->mutable_bool_list()->add_values(true);
  AddArgument(node, "string_list")->mutable_string_list()->add_values("mean");
  AddArgument(node, "dtype")->set_dtype(v1::DTYPE_BFLOAT16);
  v1::Device* device = AddArgument(node, "device")->mutable_device();
  device->set_type("cpu");
  device->set_index(1);
  AddArgument(node, "layout")->set_layout("strided");
  AddArgument(node, "memory_format")->set_memory_format("channels_last");
  v1::ComplexNumber* complex_number = AddArgument(node, "complex")->mutable_complex_value();
  complex_number->set_real(1.5);
  complex_number->set_imag(-2.5);
}

void FillTargetAndOptions(SampleRequest& request) {
  v1::Target& target = request.target;
  target.set_device_type("cpu");
  target.set_isa("x86-64-v4");
  target.add_features("amx-bf16");
  target.add_features("avx512bf16");
  target.set_vector_bytes(64);
  target.set_l1d_bytes(32768);
  target.set_l2_bytes(1048576);
  v1::CodeOptions& options = request.options;
  options.set_mode(v1::MODE_MAX_AUTOTUNE);
  options.set_backend("stepone");
  options.set_deterministic(true);
  options.set_fallback_random(true);
  options.set_disable_fusion(true);
  options.set_framework_version("2.13.0");
  (*options.mutable_backend_options())["alpha"] = "1";
  (*options.mutable_backend_options())["beta"] = "2";
}

void AddRichValues(v1::Graph& graph) {
  v1::Symbol* symbol = graph.add_symbols();
  symbol->set_name("s0");
  symbol->set_hint(8);
  symbol->set_min(2);
  symbol->set_max(1024);

  AddTensor(graph, v1::DTYPE_FLOAT32, {8, 16});                                       // 0: input
  AddTensor(graph, v1::DTYPE_FLOAT32, {16});                                          // 1: input, static
  v1::TensorType* sparse = AddTensor(graph, v1::DTYPE_OTHER, {4})->mutable_tensor();  // 2: input
  sparse->set_other_dtype("float8_e4m3fn");
  sparse->set_layout("sparse_coo");
  sparse->mutable_storage_offset()->set_value(5);
  v1::Value* size = graph.add_values();  // 3: input
  size->set_name("size");
  size->mutable_sym_int()->set_expr("(+ s0 1)");
  v1::Value* scalar = graph.add_values();  // 4: input
  scalar->set_host_scalar(true);
  AddTensor(graph, v1::DTYPE_INT64, {3});        // 5: constant
  AddTensor(graph, v1::DTYPE_FLOAT32, {8, 16});  // 6: result
  AddTensor(graph, v1::DTYPE_FLOAT32, {8, 16});  // 7: result
  AddTensor(graph, v1::DTYPE_FLOAT32, {4, 16});  // 8: result
  AddTensor(graph, v1::DTYPE_FLOAT32, {8, 16});  // 9: result
  for (uint32_t input : {0, 1, 2, 3, 4}) graph.add_inputs(input);
  graph.add_static_inputs(1);
  v1::Constant* constant = graph.add_constants();
  constant->set_value(5);
  constant->set_data(std::string(24, '\1'));
}

void AddRichNodes(v1::Graph& graph) {
  v1::Node* add = AddNode(graph, "aten.add.Tensor", {7});
  AddArgument(add, "self")->set_value(0);
  AddArgument(add, "other")->set_value(1);
  v1::Node* index = AddNode(graph, "aten.index.Tensor", {8});
  AddArgument(index, "self")->set_value(6);
  v1::ValueList* list = AddArgument(index, "indices")->mutable_value_list();
  list->add_values(0);
  list->add_present(false);
  list->add_values(5);
  list->add_present(true);
  v1::Node* split = AddNode(graph, "aten.split.Tensor", {9, 0});
  AddArgument(split, "self")->set_value(7);
  AddAllKinds(split);
  split->set_results_are_list(true);
  split->add_result_aliases(8);
  split->add_result_aliases(0);
  split->add_mutated_values(2);
  split->set_uses_rng(true);
  v1::Node* reduce = AddNode(graph, "_c10d_functional.all_reduce.default", {10});
  AddArgument(reduce, "input")->set_value(6);
  AddArgument(reduce, "reduce_op")->set_string_value("sum");
  AddArgument(reduce, "group_name")->set_string_value("4711");

  graph.add_outputs()->set_value(8);
  graph.add_outputs()->mutable_int_value()->set_value(12);
  graph.add_outputs()->set_none(true);
  graph.add_outputs()->set_value(9);
}

}  // namespace

SampleRequest RichRequest() {
  SampleRequest request;
  FillTargetAndOptions(request);
  request.graph.set_role(v1::ROLE_FORWARD);
  AddRichValues(request.graph);
  AddRichNodes(request.graph);
  return request;
}

SampleRequest LargeRequest(int nodes) {
  SampleRequest request;
  FillTargetAndOptions(request);
  v1::Graph& graph = request.graph;
  graph.set_role(v1::ROLE_JOINT);
  AddTensor(graph, v1::DTYPE_FLOAT32, {8, 128, 768});
  AddTensor(graph, v1::DTYPE_FLOAT32, {768});
  graph.add_inputs(0);
  graph.add_inputs(1);
  uint32_t last = 0;
  for (int i = 0; i < nodes; ++i) {
    const uint32_t result = static_cast<uint32_t>(graph.values_size());
    AddTensor(graph, v1::DTYPE_FLOAT32, {8, 128, 768});
    v1::Node* node = AddNode(graph, "aten.add.Tensor", {result + 1});
    AddArgument(node, "self")->set_value(last);
    AddArgument(node, "other")->set_value(1);
    AddArgument(node, "alpha")->mutable_int_value()->set_value(1);
    last = result;
  }
  graph.add_outputs()->set_value(last);
  return request;
}

v1::Graph Renumbered(const v1::Graph& graph, const std::vector<uint32_t>& permutation) {
  v1::Graph result = graph;
  for (size_t i = 0; i < permutation.size(); ++i) {
    *result.mutable_values(static_cast<int>(permutation[i])) = graph.values(static_cast<int>(i));
  }
  const auto move = [&permutation](uint32_t value) { return permutation[value]; };
  const auto move_all = [&move](auto* values) {
    for (uint32_t& value : *values) value = move(value);
  };
  const auto move_all_but_zero = [&move](auto* values) {
    for (uint32_t& value : *values) value = value == 0 ? 0 : move(value - 1) + 1;
  };
  move_all(result.mutable_inputs());
  move_all(result.mutable_static_inputs());
  for (v1::Constant& constant : *result.mutable_constants()) constant.set_value(move(constant.value()));
  for (v1::Node& node : *result.mutable_nodes()) {
    for (v1::Argument& argument : *node.mutable_arguments()) {
      if (argument.kind_case() == v1::Argument::kValue) argument.set_value(move(argument.value()));
      if (argument.kind_case() == v1::Argument::kValueList) move_all(argument.mutable_value_list()->mutable_values());
    }
    move_all_but_zero(node.mutable_results());
    move_all_but_zero(node.mutable_result_aliases());
    move_all(node.mutable_mutated_values());
  }
  for (v1::Output& output : *result.mutable_outputs()) {
    if (output.kind_case() == v1::Output::kValue) output.set_value(move(output.value()));
  }
  return result;
}

}  // namespace stepone
