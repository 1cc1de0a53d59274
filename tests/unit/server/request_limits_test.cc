#include "server/request_limits.h"

#include <functional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.h"
#include "tests/testlib/sample_request.h"

namespace stepone::server {
namespace {

using testing::AddTensor;
using ::testing::ElementsAre;
using testing::FakeTarget;
using ::testing::HasSubstr;
using testing::SampleRequest;

Offer TestOffer() {
  Offer offer;
  offer.targets.push_back(FakeTarget());
  v1::BackendCapability backend;
  backend.set_name("stepone");
  backend.set_available(true);
  offer.backends.push_back(backend);
  backend.set_name("neuron");
  backend.set_available(false);
  backend.set_reason("no neuronx-cc here");
  offer.backends.push_back(backend);
  return offer;
}

v1::ErrorDetail Rejected(const v1::CompileRequest& request, const RequestLimits& limits = {}) {
  absl::Status status = CheckRequest(request, limits, TestOffer());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  return status.ok() ? v1::ErrorDetail() : ToErrorDetail(status);
}

TEST(RequestLimits, AcceptsAValidRequest) {
  EXPECT_TRUE(CheckRequest(SampleRequest(8), {}, TestOffer()).ok()) << CheckRequest(SampleRequest(8), {}, TestOffer());
}

// One row per rule: what is done to a valid request, the rule that must be named, and the node.
struct BadGraph {
  const char* name;
  std::function<void(v1::Graph&)> spoil;
  const char* rule;
  const char* node;
};

class RequestLimitsBadGraph : public ::testing::TestWithParam<BadGraph> {};

TEST_P(RequestLimitsBadGraph, IsRejectedForTheStatedReason) {
  v1::CompileRequest request = SampleRequest(8);
  GetParam().spoil(*request.mutable_graph());
  const v1::ErrorDetail detail = Rejected(request);
  EXPECT_EQ(detail.rule(), GetParam().rule) << detail.message();
  EXPECT_EQ(detail.node(), GetParam().node) << detail.message();
}

const BadGraph kBadGraphs[] = {
    {"NoRole", [](v1::Graph& g) { g.set_role(v1::ROLE_UNSPECIFIED); }, "unknown-role", ""},
    {"DanglingInput", [](v1::Graph& g) { g.add_inputs(99); }, "undefined-value", ""},
    {"InputTwice", [](v1::Graph& g) { g.add_inputs(0); }, "duplicate-definition", ""},
    {"DanglingArgument", [](v1::Graph& g) { g.mutable_nodes(0)->mutable_arguments(0)->set_value(7); },
     "undefined-value", "relu"},
    {"NeverDefined",
     [](v1::Graph& g) {
       AddTensor(g, 8, "z");
       g.mutable_nodes(0)->mutable_arguments(0)->set_value(2);
     },
     "undefined-value", "relu"},
    {"UsesItself", [](v1::Graph& g) { g.mutable_nodes(0)->mutable_arguments(0)->set_value(1); }, "cycle", "relu"},
    {"UsesALaterNode",
     [](v1::Graph& g) {
       const uint32_t z = AddTensor(g, 8, "z");
       *g.add_nodes() = g.nodes(0);
       g.mutable_nodes(1)->set_name("relu_1");
       g.mutable_nodes(1)->mutable_arguments(0)->set_value(1);
       g.mutable_nodes(1)->set_results(0, z + 1);
       g.mutable_nodes(0)->mutable_arguments(0)->set_value(z);
     },
     "cycle", "relu"},
    {"ResultTwice",
     [](v1::Graph& g) {
       *g.add_nodes() = g.nodes(0);
       g.mutable_nodes(1)->set_name("again");
     },
     "duplicate-definition", "again"},
    {"OutputUndefined",
     [](v1::Graph& g) {
       AddTensor(g, 8, "z");
       g.mutable_outputs(0)->set_value(2);
     },
     "undefined-value", ""},
    {"OpWithoutOverload", [](v1::Graph& g) { g.mutable_nodes(0)->set_op("aten.relu"); }, "op-name", "relu"},
    {"OpWithCode", [](v1::Graph& g) { g.mutable_nodes(0)->set_op("aten.relu;system(1).default"); }, "op-name", "relu"},
    {"NodeNameWithNul", [](v1::Graph& g) { g.mutable_nodes(0)->set_name(std::string("a\0b", 3)); }, "name", "node 0"},
    {"NodeNameWithPath", [](v1::Graph& g) { g.mutable_nodes(0)->set_name("../../x"); }, "name", "node 0"},
    {"NodeNameWithCode", [](v1::Graph& g) { g.mutable_nodes(0)->set_name("x; } int main() {"); }, "name", "node 0"},
    {"ValueNameWithNewline", [](v1::Graph& g) { g.mutable_values(1)->set_name("a\nb"); }, "name", "value 1"},
    {"ArgumentName", [](v1::Graph& g) { g.mutable_nodes(0)->mutable_arguments(0)->set_name("a b"); }, "name", "relu"},
    {"NoType", [](v1::Graph& g) { g.mutable_values(1)->clear_tensor(); }, "type", "value 1"},
    {"NoDtype", [](v1::Graph& g) { g.mutable_values(1)->mutable_tensor()->clear_dtype(); }, "unknown-dtype", "value 1"},
    {"StridesMissing", [](v1::Graph& g) { g.mutable_values(1)->mutable_tensor()->add_sizes()->set_value(2); }, "type",
     "value 1"},
    {"NegativeSize", [](v1::Graph& g) { g.mutable_values(1)->mutable_tensor()->mutable_sizes(0)->set_value(-1); },
     "type", "value 1"},
    {"UnknownSymbol", [](v1::Graph& g) { g.mutable_values(1)->mutable_tensor()->mutable_sizes(0)->set_expr("s0"); },
     "expression", "value 1"},
    {"BrokenExpression",
     [](v1::Graph& g) { g.mutable_values(1)->mutable_tensor()->mutable_sizes(0)->set_expr("(+ 1"); }, "expression",
     "value 1"},
    {"UnknownOperator",
     [](v1::Graph& g) { g.mutable_values(1)->mutable_tensor()->mutable_sizes(0)->set_expr("(^ 1 2)"); }, "expression",
     "value 1"},
    {"DeepExpression",
     [](v1::Graph& g) {
       std::string text;
       for (int i = 0; i < 1000; ++i) text += "(+ 1 ";
       g.mutable_values(1)->mutable_tensor()->mutable_sizes(0)->set_expr(text);
     },
     "expression", "value 1"},
    {"SymbolTwice",
     [](v1::Graph& g) {
       g.add_symbols()->set_name("s0");
       g.add_symbols()->set_name("s0");
     },
     "symbol", ""},
    {"HintOutOfRange",
     [](v1::Graph& g) {
       g.add_symbols()->set_name("s0");
       g.mutable_symbols(0)->set_hint(5);
     },
     "symbol", ""},
    {"ConstantTooShort",
     [](v1::Graph& g) {
       g.add_constants()->set_value(AddTensor(g, 8, "c"));
       g.mutable_constants(0)->set_data("abc");
     },
     "constant-size", "constant 0"},
    {"ConstantHuge", [](v1::Graph& g) { g.add_constants()->set_value(AddTensor(g, int64_t{1} << 62, "c")); },
     "constant-size", "constant 0"},
    {"StaticInputIsNone", [](v1::Graph& g) { g.add_static_inputs(1); }, "static-input", ""},
    {"AliasesMissing",
     [](v1::Graph& g) {
       g.mutable_nodes(0)->add_result_aliases(1);
       g.mutable_nodes(0)->add_result_aliases(1);
     },
     "alias", "relu"},
    {"AliasOfItself", [](v1::Graph& g) { g.mutable_nodes(0)->add_result_aliases(2); }, "cycle", "relu"},
    {"TooManyDimensions",
     [](v1::Graph& g) {
       for (int i = 0; i < 64; ++i) g.mutable_values(1)->mutable_tensor()->add_sizes()->set_value(1);
     },
     "too-many-dimensions", "value 1"},
};

INSTANTIATE_TEST_SUITE_P(Rules, RequestLimitsBadGraph, ::testing::ValuesIn(kBadGraphs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(RequestLimits, SymbolicSizesAreAccepted) {
  v1::CompileRequest request = SampleRequest(8);
  v1::Symbol& symbol = *request.mutable_graph()->add_symbols();
  symbol.set_name("s0");
  symbol.set_hint(8);
  symbol.set_min(2);
  symbol.set_max(1000);
  request.mutable_graph()->mutable_values(1)->mutable_tensor()->mutable_sizes(0)->set_expr("(// (* s0 (+ s0 -1)) 2)");
  EXPECT_TRUE(CheckRequest(request, {}, TestOffer()).ok()) << CheckRequest(request, {}, TestOffer());
}

TEST(RequestLimits, UnknownValuesComeWithTheKnownOnes) {
  v1::CompileRequest request = SampleRequest(8);
  request.mutable_code_options()->set_mode(static_cast<v1::Mode>(77));
  v1::ErrorDetail detail = Rejected(request);
  EXPECT_EQ(detail.rule(), "unknown-mode");
  EXPECT_THAT(detail.known_values(),
              ElementsAre("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"));

  request = SampleRequest(8);
  request.mutable_code_options()->set_backend("inducktor");
  detail = Rejected(request);
  EXPECT_EQ(detail.rule(), "unknown-backend");
  EXPECT_THAT(detail.known_values(), ElementsAre("stepone", "neuron"));

  request = SampleRequest(8);
  request.mutable_target()->set_isa("z80");
  detail = Rejected(request);
  EXPECT_EQ(detail.rule(), "unknown-target");
  EXPECT_THAT(detail.known_values(), ElementsAre("cpu/x86-64-v3"));
}

TEST(RequestLimits, ABackendThatIsNotHereSaysWhy) {
  v1::CompileRequest request = SampleRequest(8);
  request.mutable_code_options()->set_backend("neuron");
  absl::Status status = CheckRequest(request, {}, TestOffer());
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no neuronx-cc here"));
}

TEST(RequestLimits, SizesAreBounded) {
  RequestLimits limits;
  limits.max_request_bytes = 10;
  EXPECT_EQ(Rejected(SampleRequest(8), limits).rule(), "request-too-large");
  limits = {};
  limits.max_nodes = 0;
  EXPECT_EQ(Rejected(SampleRequest(8), limits).rule(), "too-many-nodes");
  limits = {};
  limits.max_values = 1;
  EXPECT_EQ(Rejected(SampleRequest(8), limits).rule(), "too-many-values");
  limits = {};
  limits.max_elements = 5;
  EXPECT_EQ(Rejected(SampleRequest(8), limits).rule(), "too-many-elements");
}

TEST(RequestLimits, NamesOfTheContextAreChecked) {
  v1::CompileRequest request = SampleRequest(8);
  request.mutable_context()->set_tenant("../other");
  EXPECT_EQ(Rejected(request).rule(), "name");
  request = SampleRequest(8);
  request.mutable_context()->set_job(std::string("j\0", 2));
  EXPECT_EQ(Rejected(request).rule(), "name");
  request = SampleRequest(8);
  request.add_known_objects("short");
  EXPECT_EQ(Rejected(request).rule(), "digest");
}

}  // namespace
}  // namespace stepone::server
