// Requests that tests of the server send: valid, small, and told apart by a number.
#ifndef STEPONE_TESTS_TESTLIB_SAMPLE_REQUEST_H_
#define STEPONE_TESTS_TESTLIB_SAMPLE_REQUEST_H_

#include <string>

#include "stepone/v1/compile_service.pb.h"

namespace stepone::testing {

// The only target that the scripted compiler (fake_worker.cc) offers.
inline v1::Target FakeTarget() {
  v1::Target target;
  target.set_device_type("cpu");
  target.set_isa("x86-64-v3");
  target.set_vector_bytes(32);
  return target;
}

// Adds a float32 tensor of `elements` elements and returns its index.
inline uint32_t AddTensor(v1::Graph& graph, int64_t elements, const std::string& name) {
  v1::Value& value = *graph.add_values();
  v1::TensorType& type = *value.mutable_tensor();
  type.set_dtype(v1::DTYPE_FLOAT32);
  type.add_sizes()->set_value(elements);
  type.add_strides()->set_value(1);
  type.mutable_device()->set_type("cpu");
  value.set_name(name);
  return static_cast<uint32_t>(graph.values_size() - 1);
}

// relu(x) with `elements` elements; different numbers give different keys.
inline v1::Graph SampleGraph(int64_t elements, v1::Role role = v1::ROLE_FORWARD) {
  v1::Graph graph;
  graph.set_role(role);
  const uint32_t x = AddTensor(graph, elements, "x"), y = AddTensor(graph, elements, "y");
  graph.add_inputs(x);
  v1::Node& node = *graph.add_nodes();
  node.set_op("aten.relu.default");
  node.set_name("relu");
  v1::Argument& argument = *node.add_arguments();
  argument.set_name("self");
  argument.set_value(x);
  node.add_results(y + 1);
  graph.add_outputs()->set_value(y);
  return graph;
}

// `behaviour` and `path` are for the scripted compiler; see fake_worker.cc.
inline v1::CompileRequest SampleRequest(int64_t elements, const std::string& behaviour = "ok",
                                        const std::string& path = "", v1::Role role = v1::ROLE_FORWARD) {
  v1::CompileRequest request;
  request.mutable_context()->set_tenant("t");
  *request.mutable_graph() = SampleGraph(elements, role);
  *request.mutable_target() = FakeTarget();
  v1::CodeOptions& options = *request.mutable_code_options();
  options.set_mode(v1::MODE_DEFAULT);
  options.set_backend("stepone");
  options.set_framework_version("2.13.0+cpu");
  auto& extra = *options.mutable_backend_options();
  if (behaviour != "ok") extra["fake.behaviour"] = behaviour;
  if (!path.empty()) extra["fake.path"] = path;
  return request;
}

// What a captured graph became, for an artifact that the scripted compiler made of `request` (an inference graph): its
// plans take nothing and return nothing.
inline v1::PutBundleRequest SampleBundle(const v1::CompileRequest& request, const std::string& trace,
                                         const std::string& graph_key) {
  v1::PutBundleRequest put;
  put.mutable_trace()->set_trace(trace);
  *put.mutable_trace()->mutable_context() = request.context();
  *put.mutable_trace()->mutable_target() = request.target();
  *put.mutable_trace()->mutable_code_options() = request.code_options();
  v1::BundleGraph& graph = *put.add_graphs();
  graph.set_role(v1::ROLE_INFERENCE);
  graph.set_graph_key(graph_key);
  return put;
}

}  // namespace stepone::testing

#endif  // STEPONE_TESTS_TESTLIB_SAMPLE_REQUEST_H_
