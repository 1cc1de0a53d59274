// From a graph to numbers with nothing played: server, worker, compiler and the client's protobuf side, without
// LibTorch.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "client/compile_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/signing.h"
#include "tests/testlib/server_under_test.h"

namespace stepone {
namespace {

namespace fs = std::filesystem;
using client::ClientConfig;
using client::CompileClient;
using testing::FreshFolder;
using testing::ServerUnderTest;

constexpr int64_t kRows = 24, kColumns = 40;

uint32_t AddTensor(v1::Graph& graph, const std::vector<int64_t>& sizes) {
  v1::TensorType& type = *graph.add_values()->mutable_tensor();
  type.set_dtype(v1::DTYPE_FLOAT32);
  int64_t stride = 1;
  for (int64_t size : sizes) {
    type.add_sizes()->set_value(size);
    type.add_strides();
  }
  for (int i = static_cast<int>(sizes.size()); i-- > 0;) {
    type.mutable_strides(i)->set_value(stride);
    stride *= sizes[static_cast<size_t>(i)];
  }
  type.mutable_device()->set_type("cpu");
  return static_cast<uint32_t>(graph.values_size() - 1);
}

v1::Node& AddNode(v1::Graph& graph, const std::string& op, uint32_t result) {
  v1::Node& node = *graph.add_nodes();
  node.set_op(op);
  node.set_name(op);
  node.add_results(result + 1);
  return node;
}

v1::Argument& AddArgument(v1::Node& node, const std::string& name) {
  node.add_arguments()->set_name(name);
  return *node.mutable_arguments(node.arguments_size() - 1);
}

// h = tanh(x * w + b), s = h.sum(1): elements, a broadcast and a reduction.
v1::CompileRequest Request() {
  v1::CompileRequest request;
  v1::Graph& graph = *request.mutable_graph();
  graph.set_role(v1::ROLE_FORWARD);
  const uint32_t x = AddTensor(graph, {kRows, kColumns}), w = AddTensor(graph, {kRows, kColumns});
  const uint32_t b = AddTensor(graph, {kColumns}), product = AddTensor(graph, {kRows, kColumns});
  const uint32_t shifted = AddTensor(graph, {kRows, kColumns}), h = AddTensor(graph, {kRows, kColumns});
  const uint32_t s = AddTensor(graph, {kRows});
  for (uint32_t input : {x, w, b}) graph.add_inputs(input);
  v1::Node& mul = AddNode(graph, "aten.mul.Tensor", product);
  AddArgument(mul, "self").set_value(x);
  AddArgument(mul, "other").set_value(w);
  v1::Node& add = AddNode(graph, "aten.add.Tensor", shifted);
  AddArgument(add, "self").set_value(product);
  AddArgument(add, "other").set_value(b);
  AddArgument(add, "alpha").mutable_int_value()->set_value(1);
  AddArgument(AddNode(graph, "aten.tanh.default", h), "self").set_value(shifted);
  v1::Node& sum = AddNode(graph, "aten.sum.dim_IntList", s);
  AddArgument(sum, "self").set_value(h);
  AddArgument(sum, "dim").mutable_int_list()->add_values()->set_value(1);
  AddArgument(sum, "keepdim").set_bool_value(false);
  for (uint32_t output : {h, s}) graph.add_outputs()->set_value(output);
  request.mutable_code_options()->set_mode(v1::MODE_DEFAULT);
  request.mutable_code_options()->set_backend("stepone");
  request.mutable_code_options()->set_framework_version("2.13.0");
  request.mutable_run_options()->set_blocking_step(true);
  return request;
}

// Runs a plan that launches kernels and does nothing else.
std::vector<std::vector<float>> Execute(const client::Program& program, const std::vector<std::vector<float>>& inputs) {
  const client::Plan& plan = program.plan;
  std::vector<std::byte> arena(static_cast<size_t>(plan.arena_bytes) + 64);
  std::byte* const base = arena.data() + (64 - reinterpret_cast<uintptr_t>(arena.data()) % 64);
  std::vector<std::vector<float>> memory(plan.buffers.size());
  std::vector<void*> pointers(plan.buffers.size());
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const client::Buffer& buffer = plan.buffers[i];
    if (buffer.storage == client::Storage::kInput) memory[i] = inputs[buffer.index];
    memory[i].resize(static_cast<size_t>(client::SpanElements(buffer)));
    pointers[i] = buffer.storage == client::Storage::kArena ? static_cast<void*>(base + buffer.offset)
                                                            : static_cast<void*>(memory[i].data());
  }
  for (const client::Step& step : plan.steps) {
    if (std::holds_alternative<client::FreeStep>(step)) continue;
    const auto* launch = std::get_if<client::LaunchStep>(&step);
    if (launch == nullptr) {
      ADD_FAILURE() << "a step that is no kernel:\n" << client::DescribePlan(plan);
      break;
    }
    std::vector<void*> arguments;
    for (uint32_t buffer : launch->buffers) arguments.push_back(pointers[buffer]);
    EXPECT_EQ(program.kernels.functions[launch->kernel](arguments.data(), nullptr, 0, launch->units),
              STEPONE_KERNEL_OK);
  }
  std::vector<std::vector<float>> outputs;
  for (const client::OutputSpec& output : plan.outputs) outputs.push_back(memory[output.buffer]);
  return outputs;
}

class RealWorkerTest : public ::testing::Test {
 protected:
  RealWorkerTest() { Start(); }
  ~RealWorkerTest() override {
    server_.reset();
    fs::remove_all(folder_);
  }
  void Start() { server_ = std::make_unique<ServerUnderTest>(STEPONE_SERVER, STEPONE_WORKER, folder_); }
  // A client that trusts `key`, or the server's own.
  ClientConfig Config(std::string key = "") {
    if (key.empty()) {
      grpc::ClientContext context;
      v1::GetCapabilitiesResponse capabilities;
      EXPECT_TRUE(server_->stub()->GetCapabilities(&context, {}, &capabilities).ok());
      key = capabilities.public_key();
    }
    ClientConfig config;
    config.endpoint = server_->tcp();
    config.trusted_keys = {key};
    return config;
  }
  static std::shared_ptr<client::CompileCall> Compile(CompileClient& client) {
    auto call = client.Submit(Request());
    EXPECT_TRUE(call->Wait(absl::Minutes(5)));
    return call;
  }

  const std::string folder_ = FreshFolder();
  std::unique_ptr<ServerUnderTest> server_;
};

TEST_F(RealWorkerTest, AGraphBecomesTheRightNumbers) {
  CompileClient client(Config());
  const auto call = Compile(client);
  ASSERT_TRUE(call->status().ok()) << call->status();
  const auto graph = call->result();
  EXPECT_EQ(graph->source, v1::SOURCE_COMPILED);
  ASSERT_GE(graph->program->plan.kernels.size(), 1u);

  std::vector<float> x(kRows * kColumns), w(kRows * kColumns), b(kColumns);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(std::sin(0.37 * static_cast<double>(i)));
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(std::cos(0.11 * static_cast<double>(i)) * 2);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(0.05 * static_cast<double>(i) - 1);
  const auto outputs = Execute(*graph->program, {x, w, b});
  ASSERT_EQ(outputs.size(), 2u);
  ASSERT_EQ(outputs[0].size(), x.size());
  ASSERT_EQ(outputs[1].size(), static_cast<size_t>(kRows));
  for (size_t row = 0; row < kRows; ++row) {
    double sum = 0;
    for (size_t column = 0; column < kColumns; ++column) {
      const size_t i = row * kColumns + column;
      const double h = std::tanh(static_cast<double>(x[i]) * w[i] + b[column]);
      EXPECT_NEAR(outputs[0][i], h, 1e-6) << row << ", " << column;
      sum += h;
    }
    EXPECT_NEAR(outputs[1][row], sum, 1e-5) << row;
  }
}

TEST_F(RealWorkerTest, ARestartedServerHandsOutTheSameArtifact) {
  client::CompiledGraph cold;
  {
    CompileClient client(Config());
    const auto call = Compile(client);
    ASSERT_TRUE(call->status().ok()) << call->status();
    cold = *call->result();
  }
  server_->Signal(SIGTERM);
  ASSERT_EQ(server_->Wait(), 0);
  Start();
  CompileClient client(Config());
  const auto call = Compile(client);
  ASSERT_TRUE(call->status().ok()) << call->status();
  EXPECT_EQ(call->result()->source, v1::SOURCE_DISK);
  EXPECT_EQ(call->result()->graph_key, cold.graph_key);
  EXPECT_EQ(call->result()->manifest.SerializeAsString(), cold.manifest.SerializeAsString());
}

TEST_F(RealWorkerTest, AnArtifactByAnUntrustedKeyIsNotMapped) {
  CompileClient client(Config(SigningKey::Generate().public_key()));
  const auto call = Compile(client);
  EXPECT_EQ(call->status().code(), absl::StatusCode::kPermissionDenied) << call->status();
  EXPECT_EQ(call->result(), nullptr);
}

}  // namespace
}  // namespace stepone
