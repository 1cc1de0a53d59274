#include "compiler/compile.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "proto/digest.h"
#include "proto/host_target.h"
#include "proto/status.h"

namespace stepone::compiler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class MapCache : public KernelCache {
 public:
  std::vector<std::string> Lookup(const std::vector<std::string>& keys) override {
    std::vector<std::string> found;
    for (const std::string& key : keys) found.push_back(objects.contains(key) ? objects[key] : "");
    return found;
  }
  void Keep(const CompileResult& result) {
    for (const v1::CompiledKernel& kernel : result.new_kernels) objects[kernel.kernel_key()] = kernel.object();
  }
  std::map<std::string, std::string> objects;
};

class Listener : public CompileObserver {
 public:
  void OnStage(std::string_view stage, int done, int total) override {
    if (stages.empty() || stages.back() != stage) stages.emplace_back(stage);
    if (stage == cancel_at) cancelled = true;
  }
  bool Cancelled() override { return cancelled; }
  std::vector<std::string> stages;
  std::string cancel_at;
  bool cancelled = false;
};

uint32_t AddTensor(v1::Graph& graph, std::vector<int64_t> sizes) {
  v1::TensorType& type = *graph.add_values()->mutable_tensor();
  type.set_dtype(v1::DTYPE_FLOAT32);
  type.mutable_device()->set_type("cpu");
  int64_t stride = 1;
  std::vector<int64_t> strides(sizes.size());
  for (size_t d = sizes.size(); d-- > 0; stride *= sizes[d]) strides[d] = stride;
  for (size_t d = 0; d < sizes.size(); ++d) {
    type.add_sizes()->set_value(sizes[d]);
    type.add_strides()->set_value(strides[d]);
  }
  return graph.values_size() - 1;
}

v1::Argument& AddArgument(v1::Node& node, const std::string& name) {
  v1::Argument& argument = *node.add_arguments();
  argument.set_name(name);
  return argument;
}

// Appends a call with tensors [64, 64] and returns its result.
uint32_t AddCall(v1::Graph& graph, const std::string& name, const std::string& op,
                 const std::vector<std::pair<std::string, uint32_t>>& args, std::vector<int64_t> sizes = {64, 64}) {
  v1::Node& node = *graph.add_nodes();
  node.set_name(name);
  node.set_op(op);
  for (const auto& [parameter, value] : args) AddArgument(node, parameter).set_value(value);
  if (op == "aten.add.Tensor") AddArgument(node, "alpha").mutable_int_value()->set_value(1);
  const uint32_t result = AddTensor(graph, std::move(sizes));
  node.add_results(result + 1);
  node.add_result_aliases(0);
  return result;
}

// out = tanh(a) * b + (a @ b), all [64, 64]
v1::Graph SmallGraph() {
  v1::Graph graph;
  graph.set_role(v1::ROLE_FORWARD);
  const uint32_t a = AddTensor(graph, {64, 64}), b = AddTensor(graph, {64, 64});
  graph.add_inputs(a);
  graph.add_inputs(b);
  const uint32_t tanh = AddCall(graph, "tanh", "aten.tanh.default", {{"self", a}});
  const uint32_t product = AddCall(graph, "mul", "aten.mul.Tensor", {{"self", tanh}, {"other", b}});
  const uint32_t matrix = AddCall(graph, "mm", "aten.mm.default", {{"self", a}, {"mat2", b}});
  const uint32_t sum = AddCall(graph, "add", "aten.add.Tensor", {{"self", product}, {"other", matrix}});
  graph.add_outputs()->set_value(sum);
  return graph;
}

CompileInput InputFor(const v1::Graph& graph) {
  CompileInput input;
  input.graph = &graph;
  input.target = HostTarget();
  input.options.set_mode(v1::MODE_DEFAULT);
  input.options.set_backend("stepone");
  return input;
}

// What must be equal from compile to compile: everything but the report's times.
std::string Bytes(CompileResult result) {
  result.manifest.clear_report();
  std::string bytes = result.manifest.SerializeAsString();
  for (const v1::ObjectBytes& object : result.objects) bytes += object.SerializeAsString();
  return bytes;
}

TEST(CompileTest, FusesWhatIsNoMatrixProduct) {
  const v1::Graph graph = SmallGraph();
  CompileInput input = InputFor(graph);
  input.report = true;
  MapCache cache;
  Listener listener;
  const auto result = Compile(input, cache, listener);
  ASSERT_TRUE(result.ok()) << result.status();
  const v1::Manifest& manifest = result->manifest;
  EXPECT_THAT(manifest.kernels(), SizeIs(1));
  EXPECT_THAT(manifest.kernels(0).source_ops(), ::testing::UnorderedElementsAre("tanh", "mul", "add"));
  ASSERT_THAT(result->objects, SizeIs(1));
  EXPECT_EQ(result->objects[0].digest(), Sha256(result->objects[0].data()).Raw());
  EXPECT_EQ(manifest.objects(0).digest(), result->objects[0].digest());
  EXPECT_EQ(manifest.report().graph_ops(), 4);
  EXPECT_EQ(manifest.report().fused_ops(), 3);
  EXPECT_THAT(manifest.report().extern_ops(), ElementsAre("aten.mm.default x 1"));
  EXPECT_EQ(manifest.steps(0).call().out_overload(), "aten.mm.out");
  EXPECT_EQ(manifest.arena_bytes(), 64u * 64 * 4);
  EXPECT_EQ(manifest.compiler_fingerprint(), Fingerprint());
  EXPECT_THAT(listener.stages, ElementsAre("import", "passes", "fuse", "codegen", "build", "package"));
}

v1::CompileReport ReportOf(const v1::Graph& graph) {
  MapCache cache;
  Listener listener;
  const auto result = Compile(InputFor(graph), cache, listener);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->manifest.report() : v1::CompileReport();
}

// sum(gelu(a + 1)): one kernel.
TEST(CompileTest, ReportCountsOpsThatFoldIntoOthers) {
  v1::Graph graph;
  graph.set_role(v1::ROLE_FORWARD);
  const uint32_t a = AddTensor(graph, {64, 64});
  graph.add_inputs(a);
  const uint32_t next = AddCall(graph, "add", "aten.add.Tensor", {{"self", a}});
  AddArgument(*graph.mutable_nodes(0), "other").mutable_int_value()->set_value(1);
  const uint32_t gelu = AddCall(graph, "gelu", "aten.gelu.default", {{"self", next}});
  const uint32_t sum = AddCall(graph, "sum", "aten.sum.default", {{"self", gelu}}, {});
  graph.add_outputs()->set_value(sum);
  const v1::CompileReport report = ReportOf(graph);
  EXPECT_EQ(report.graph_ops(), 3);
  EXPECT_EQ(report.fused_ops(), 3);
}

// (tanh(a) * tanh(a)) * 1 + a @ a: one tanh and no product with 1 are left, and still both were wanted.
TEST(CompileTest, ReportCountsOpsThatAreMergedOrDropped) {
  v1::Graph graph;
  graph.set_role(v1::ROLE_FORWARD);
  const uint32_t a = AddTensor(graph, {64, 64});
  graph.add_inputs(a);
  const uint32_t x = AddCall(graph, "tanh", "aten.tanh.default", {{"self", a}});
  const uint32_t y = AddCall(graph, "tanh_1", "aten.tanh.default", {{"self", a}});
  const uint32_t square = AddCall(graph, "mul", "aten.mul.Tensor", {{"self", x}, {"other", y}});
  const uint32_t same = AddCall(graph, "mul_1", "aten.mul.Tensor", {{"self", square}});
  AddArgument(*graph.mutable_nodes(3), "other").mutable_int_value()->set_value(1);
  const uint32_t matrix = AddCall(graph, "mm", "aten.mm.default", {{"self", a}, {"mat2", a}});
  graph.add_outputs()->set_value(AddCall(graph, "add", "aten.add.Tensor", {{"self", same}, {"other", matrix}}));
  const v1::CompileReport report = ReportOf(graph);
  EXPECT_EQ(report.graph_ops(), 6);
  EXPECT_EQ(report.fused_ops(), 5);
}

TEST(CompileTest, SameInputSameBytesWhateverTheThreadsAndTheCache) {
  const v1::Graph graph = SmallGraph();
  CompileInput input = InputFor(graph);
  MapCache cache;
  Listener listener;
  const auto first = Compile(input, cache, listener);
  ASSERT_TRUE(first.ok()) << first.status();
  input.threads = 2;
  const auto second = Compile(input, cache, listener);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(Bytes(*first), Bytes(*second));
  cache.Keep(*first);
  const auto third = Compile(input, cache, listener);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_THAT(third->new_kernels, IsEmpty());
  EXPECT_EQ(Bytes(*first), Bytes(*third));
}

TEST(CompileTest, KernelKeysDependOnTheInstructionSet) {
  const v1::Graph graph = SmallGraph();
  CompileInput input = InputFor(graph);
  input.target.set_isa("x86-64-v3");
  input.target.set_vector_bytes(32);
  MapCache cache;
  Listener listener;
  const auto avx2 = Compile(input, cache, listener);
  ASSERT_TRUE(avx2.ok()) << avx2.status();
  input.target.set_isa("x86-64-v4");
  input.target.set_vector_bytes(64);
  const auto avx512 = Compile(input, cache, listener);
  ASSERT_TRUE(avx512.ok()) << avx512.status() << ": a target that the host lacks can be compiled for";
  EXPECT_NE(avx2->manifest.kernels(0).kernel_key(), avx512->manifest.kernels(0).kernel_key());
}

TEST(CompileTest, StopsWhenNobodyWaits) {
  const v1::Graph graph = SmallGraph();
  for (const char* stage : {"passes", "codegen", "build"}) {
    MapCache cache;
    Listener listener;
    listener.cancel_at = stage;
    EXPECT_EQ(Compile(InputFor(graph), cache, listener).status().code(), absl::StatusCode::kCancelled) << stage;
    EXPECT_EQ(listener.stages.back(), stage);
  }
}

TEST(CompileTest, UnknownBackendAndDeviceNameWhatThereIs) {
  const v1::Graph graph = SmallGraph();
  MapCache cache;
  Listener listener;
  CompileInput input = InputFor(graph);
  input.options.set_backend("triton");
  absl::Status status = Compile(input, cache, listener).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(ToErrorDetail(status).known_values(), ElementsAre("stepone"));
  input = InputFor(graph);
  input.target.set_device_type("cuda");
  EXPECT_EQ(Compile(input, cache, listener).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(CompileTest, ModeThatDoesNotDifferSaysSo) {
  const v1::Graph graph = SmallGraph();
  MapCache cache;
  Listener listener;
  CompileInput input = InputFor(graph);
  EXPECT_THAT(Compile(input, cache, listener)->manifest.report().notes(), IsEmpty());
  for (v1::Mode mode : {v1::MODE_REDUCE_OVERHEAD, v1::MODE_MAX_AUTOTUNE, v1::MODE_MAX_AUTOTUNE_NO_CUDAGRAPHS}) {
    input.options.set_mode(mode);
    EXPECT_THAT(Compile(input, cache, listener)->manifest.report().notes(),
                ElementsAre(HasSubstr("same code as default")));
  }
}

TEST(CompileTest, BrokenGraphNamesTheNode) {
  v1::Graph graph = SmallGraph();
  graph.mutable_nodes(1)->mutable_arguments(0)->set_value(999);
  MapCache cache;
  Listener listener;
  const absl::Status status = Compile(InputFor(graph), cache, listener).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ToErrorDetail(status).node(), "mul");
}

}  // namespace
}  // namespace stepone::compiler
