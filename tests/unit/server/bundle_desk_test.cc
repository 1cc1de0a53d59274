// Bundles: what is kept of a client's word, and to whom it is handed out.
#include "server/bundle_desk.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "cache/memory_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.h"
#include "server/artifact_builder.h"
#include "tests/testlib/sample_request.h"

namespace stepone::server {
namespace {

using testing::FakeTarget;
using ::testing::HasSubstr;

constexpr char kFingerprint[] = "test 1";

v1::CodeOptions SampleOptions() {
  v1::CodeOptions options;
  options.set_mode(v1::MODE_DEFAULT);
  options.set_backend("stepone");
  return options;
}

v1::TraceRequest Trace(const std::string& text, const std::string& tenant = "t") {
  v1::TraceRequest request;
  request.mutable_context()->set_tenant(tenant);
  request.set_trace(text);
  *request.mutable_target() = FakeTarget();
  *request.mutable_code_options() = SampleOptions();
  return request;
}

// One input that gets a gradient, one output, one value saved.
v1::Convention SampleConvention() {
  v1::Convention convention;
  convention.add_inputs()->set_requires_grad(true);
  convention.add_outputs()->set_kind(v1::OUTPUT_KIND_NON_ALIAS);
  v1::TangentConvention& tangent = *convention.add_tangents();
  tangent.add_sizes(8);
  tangent.add_strides(1);
  convention.add_gradients()->set_defined(true);
  convention.mutable_gradients(0)->add_tangents(0);
  convention.set_has_backward(true);
  convention.set_forward_outputs(2);
  convention.set_saved_outputs(1);
  return convention;
}

class BundleDeskTest : public ::testing::Test {
 protected:
  BundleDeskTest() : store_(kStoreBytes) { Open(); }

  void Open() {
    bundles_.reset();
    artifacts_ = std::make_unique<ArtifactDesk>(ArtifactDesk::Options(), &store_, &key_, &metrics_);
    RequestLimits limits;
    limits.max_request_bytes = 64 << 10;
    bundles_ = std::make_unique<BundleDesk>(limits, artifacts_.get(), &store_, &key_, &metrics_);
    Offer offer;
    offer.targets.push_back(FakeTarget());
    v1::BackendCapability& backend = offer.backends.emplace_back();
    backend.set_name("stepone");
    backend.set_available(true);
    bundles_->SetWorkers(kFingerprint, offer);
  }

  // Stores an artifact as a compile would, and returns its key. What is there and not ours is replaced.
  Digest Store(v1::Role role, int inputs, int outputs, const std::string& tenant = "t",
               const std::string& fingerprint = kFingerprint) {
    KeyMaterial material;
    material.canonical = v1::Role_Name(role) + tenant + fingerprint;
    material.key = Sha256(material.canonical);
    v1::JobResult result;
    v1::Manifest& manifest = *result.mutable_manifest();
    manifest.set_role(role);
    *manifest.mutable_target() = FakeTarget();
    *manifest.mutable_code_options() = SampleOptions();
    for (int i = 0; i < inputs; ++i) manifest.add_inputs();
    for (int i = 0; i < outputs; ++i) manifest.add_outputs();
    absl::StatusOr<v1::Artifact> artifact = BuildArtifact(result, material.key, fingerprint, tenant, key_);
    EXPECT_TRUE(artifact.ok()) << artifact.status();
    artifacts_->cache().PutOrGet(material, *std::move(artifact), !artifacts_->Stored(material.key).ok());
    return material.key;
  }

  v1::PutBundleRequest SamplePut(const std::string& trace) {
    v1::PutBundleRequest request;
    *request.mutable_trace() = Trace(trace);
    *request.mutable_convention() = SampleConvention();
    v1::BundleGraph& forward = *request.add_graphs();
    forward.set_role(v1::ROLE_FORWARD);
    forward.set_graph_key(Store(v1::ROLE_FORWARD, 1, 2).Raw());
    v1::BundleGraph& backward = *request.add_graphs();
    backward.set_role(v1::ROLE_BACKWARD);
    backward.set_graph_key(Store(v1::ROLE_BACKWARD, 2, 1).Raw());
    return request;
  }

  bool Put(const v1::PutBundleRequest& request) {
    absl::StatusOr<v1::PutBundleResponse> response = bundles_->Put(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() && response->stored();
  }

  v1::FindBundleResponse Find(const v1::TraceRequest& request) {
    absl::StatusOr<v1::FindBundleResponse> response = bundles_->Find(request);
    EXPECT_TRUE(response.ok()) << response.status();
    return response.ok() ? *std::move(response) : v1::FindBundleResponse();
  }

  static constexpr size_t kStoreBytes = 64 << 10;
  SigningKey key_ = SigningKey::Generate();
  MemoryStore store_;
  Metrics metrics_;
  std::unique_ptr<ArtifactDesk> artifacts_;
  std::unique_ptr<BundleDesk> bundles_;
};

TEST_F(BundleDeskTest, FindsWhatWasPut) {
  EXPECT_FALSE(Find(Trace("a\nb")).found());
  const v1::PutBundleRequest put = SamplePut("a\nb");
  EXPECT_TRUE(Put(put));
  const v1::FindBundleResponse found = Find(Trace("a\nb"));
  ASSERT_TRUE(found.found());
  EXPECT_EQ(found.source(), v1::SOURCE_MEMORY);
  TrustedKeys trusted;
  ASSERT_TRUE(trusted.Add(key_.public_key()).ok());
  EXPECT_TRUE(trusted.Verify(found.bundle()).ok());
  v1::Bundle bundle;
  ASSERT_TRUE(bundle.ParseFromString(found.bundle().bundle()));
  EXPECT_EQ(bundle.trace_key(), found.trace_key());
  EXPECT_EQ(bundle.trace_digest(), Sha256("a\nb").Raw());
  EXPECT_EQ(bundle.tenant(), "t");
  EXPECT_EQ(bundle.convention().SerializeAsString(), put.convention().SerializeAsString());
  ASSERT_EQ(found.artifacts_size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(found.artifacts(i).signed_manifest().graph_key(), put.graphs(i).graph_key());
  }
  EXPECT_FALSE(Find(Trace("a\nc")).found());
  EXPECT_EQ(metrics_.bundles.Value("hit"), 1);
  EXPECT_EQ(metrics_.bundles.Value("miss"), 2);
}

TEST_F(BundleDeskTest, TheFirstWriterWins) {
  v1::PutBundleRequest put = SamplePut("a");
  EXPECT_TRUE(Put(put));
  const std::string first = Find(Trace("a")).bundle().SerializeAsString();
  put.mutable_convention()->set_deterministic(true);
  EXPECT_FALSE(Put(put));
  EXPECT_EQ(Find(Trace("a")).bundle().SerializeAsString(), first);
  EXPECT_EQ(metrics_.bundles.Value("known"), 1);
}

TEST_F(BundleDeskTest, OptionsAndTargetsAreToldApart) {
  EXPECT_TRUE(Put(SamplePut("a")));
  v1::TraceRequest other = Trace("a");
  other.mutable_code_options()->set_deterministic(true);
  EXPECT_FALSE(Find(other).found());
  other = Trace("a");
  other.mutable_target()->set_l2_bytes(12345);
  EXPECT_FALSE(Find(other).found());
}

TEST_F(BundleDeskTest, TenantsDoNotShare) {
  v1::PutBundleRequest put = SamplePut("a");
  EXPECT_TRUE(Put(put));
  EXPECT_FALSE(Find(Trace("a", "u")).found());
  put.mutable_trace()->mutable_context()->set_tenant("u");
  const absl::Status status = bundles_->Put(put).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("ROLE_FORWARD"));
}

TEST_F(BundleDeskTest, ABundleWhoseArtifactsAreGoneIsAMissUntilTheyAreBack) {
  const v1::PutBundleRequest put = SamplePut("a");
  EXPECT_TRUE(Put(put));
  // The store forgets what was used longest ago: the artifacts, not the bundle.
  const Digest trace_key = TraceKey("a", FakeTarget(), SampleOptions(), kFingerprint, "t").key;
  const Digest forward = *Digest::FromRaw(put.graphs(0).graph_key());
  for (int i = 0; i < 100 && artifacts_->cache().Contains(forward); ++i) {
    ASSERT_TRUE(store_.Get({Kind::kBundle, trace_key}).ok());
    const std::string filler(4 << 10, static_cast<char>(i));
    ASSERT_TRUE(store_.Put({Kind::kKernel, Sha256(filler)}, MakeBlob(filler)).ok());
  }
  ASSERT_TRUE(store_.Find({Kind::kBundle, trace_key}).ok());
  EXPECT_FALSE(Find(Trace("a")).found());
  EXPECT_GE(metrics_.bundles.Value("incomplete"), 1);
  Store(v1::ROLE_FORWARD, 1, 2);
  Store(v1::ROLE_BACKWARD, 2, 1);
  EXPECT_TRUE(Find(Trace("a")).found());
}

TEST_F(BundleDeskTest, WhatAnotherKeySignedIsNotHandedOutAndIsReplaced) {
  EXPECT_TRUE(Put(SamplePut("a")));
  key_ = SigningKey::Generate();
  Open();
  EXPECT_FALSE(Find(Trace("a")).found());
  EXPECT_TRUE(Put(SamplePut("a")));
  EXPECT_TRUE(Find(Trace("a")).found());
}

TEST_F(BundleDeskTest, ArtifactsThatAnotherKeySignedAreNeverHandedOutNotEvenFromMemory) {
  const v1::PutBundleRequest put = SamplePut("a");
  key_ = SigningKey::Generate();
  Open();
  const Digest forward = *Digest::FromRaw(put.graphs(0).graph_key());
  v1::Source source = v1::SOURCE_UNSPECIFIED;
  EXPECT_EQ(artifacts_->LookUp(forward, "job", source), nullptr);
  EXPECT_EQ(artifacts_->LookUp(forward, "job", source), nullptr);
  const absl::Status status = bundles_->Put(put).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("is not here"));
}

TEST_F(BundleDeskTest, ArtifactsOfAnotherCompilerAreRefused) {
  // A trainer that has got its artifacts from the server before an update tells the one after it.
  v1::PutBundleRequest put = SamplePut("a");
  put.mutable_graphs(1)->set_graph_key(Store(v1::ROLE_BACKWARD, 2, 1, "t", "test 0").Raw());
  const absl::Status status = bundles_->Put(put).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another compiler: test 0"));
  EXPECT_FALSE(Find(Trace("a")).found());
}

TEST_F(BundleDeskTest, TheRanksOfAJobGetTheSameArtifacts) {
  v1::PutBundleRequest put = SamplePut("a");
  EXPECT_TRUE(Put(put));
  v1::TraceRequest rank = Trace("a");
  rank.mutable_context()->set_job("job");
  const v1::FindBundleResponse first = Find(rank);
  ASSERT_TRUE(first.found());
  // Somebody asks for a new compile in between.
  KeyMaterial material;
  material.canonical = "ROLE_FORWARDt" + std::string(kFingerprint);
  material.key = Sha256(material.canonical);
  absl::StatusOr<v1::Artifact> other = artifacts_->Stored(material.key);
  ASSERT_TRUE(other.ok()) << other.status();
  other->mutable_signed_manifest()->set_created_unix_ms(1);
  key_.Sign(*other->mutable_signed_manifest());
  artifacts_->cache().PutOrGet(material, *std::move(other), /*overwrite=*/true);
  rank.mutable_context()->set_rank(1);
  EXPECT_EQ(Find(rank).SerializeAsString(), first.SerializeAsString());
  EXPECT_EQ(Find(Trace("a")).artifacts(0).signed_manifest().created_unix_ms(), 1) << "another job gets the new one";
}

TEST_F(BundleDeskTest, AnInferenceGraphHasOneArtifact) {
  v1::PutBundleRequest put;
  *put.mutable_trace() = Trace("a");
  v1::Convention& convention = *put.mutable_convention();
  convention.add_inputs()->set_mutates_data(true);
  convention.mutable_inputs(0)->set_mutation_without_grad(true);
  convention.add_inputs();
  v1::OutputConvention& output = *convention.add_outputs();
  output.set_kind(v1::OUTPUT_KIND_ALIAS_OF_INPUT);
  output.set_base(1);
  convention.set_forward_outputs(2);  // the written input and the output
  v1::BundleGraph& graph = *put.add_graphs();
  graph.set_role(v1::ROLE_INFERENCE);
  graph.set_graph_key(Store(v1::ROLE_INFERENCE, 2, 2).Raw());
  // Without a backward nothing can be said of one.
  const std::pair<const char*, std::function<void(v1::Convention&)>> misplaced[] = {
      {"tangents", [](v1::Convention& c) { c.add_tangents(); }},
      {"gradients", [](v1::Convention& c) { c.add_gradients(); }},
      {"detached_inputs", [](v1::Convention& c) { c.add_detached_inputs(0); }},
      {"inputs_mutated_in_backward", [](v1::Convention& c) { c.add_inputs_mutated_in_backward(0); }},
      {"donated_saved", [](v1::Convention& c) { c.add_donated_saved(0); }},
      {"has_donated", [](v1::Convention& c) { c.set_has_donated(true); }},
      {"saved_outputs", [](v1::Convention& c) { c.set_saved_outputs(1); }},
      {"saved_without_version_check", [](v1::Convention& c) { c.set_saved_without_version_check(1); }},
  };
  for (const auto& [field, spoil] : misplaced) {
    v1::PutBundleRequest bad = put;
    spoil(*bad.mutable_convention());
    const absl::Status status = bundles_->Put(bad).status();
    EXPECT_EQ(ToErrorDetail(status).rule(), "convention-counts") << field << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("without a backward")) << field;
  }
  EXPECT_TRUE(Put(put));
  EXPECT_EQ(Find(Trace("a")).artifacts_size(), 1);
  // A write that the plan does itself is no output.
  put.mutable_trace()->set_trace("b");
  put.mutable_convention()->mutable_inputs(0)->set_mutation_in_graph(true);
  EXPECT_EQ(ToErrorDetail(bundles_->Put(put).status()).rule(), "convention-counts");
}

TEST_F(BundleDeskTest, ExplainsAMissByTheLinesThatDiffer) {
  EXPECT_TRUE(Put(SamplePut("torch 2.13.0\ninput 0: float32 (8,)\n0: relu(%0)")));
  const absl::StatusOr<v1::ExplainResponse> same =
      bundles_->Explain(Trace("torch 2.13.0\ninput 0: float32 (8,)\n0: relu(%0)"));
  ASSERT_TRUE(same.ok());
  EXPECT_TRUE(same->found());
  const absl::StatusOr<v1::ExplainResponse> answer =
      bundles_->Explain(Trace("torch 2.13.0\ninput 0: float32 (9,)\n0: relu(%0)"));
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->found());
  ASSERT_EQ(answer->differences_size(), 1);
  EXPECT_EQ(answer->differences(0).field(), "trace.line[1]");
  EXPECT_EQ(answer->differences(0).requested(), "input 0: float32 (9,)");
  EXPECT_EQ(answer->differences(0).nearest(), "input 0: float32 (8,)");
}

struct BadPut {
  const char* name;
  std::function<void(v1::PutBundleRequest&)> spoil;
  absl::StatusCode code;
  const char* rule;     // "" where only the code tells
  const char* message;  // part of it
};

class BundleDeskBadPut : public BundleDeskTest, public ::testing::WithParamInterface<BadPut> {};

TEST_P(BundleDeskBadPut, IsRefusedAndNotStored) {
  v1::PutBundleRequest put = SamplePut("a");
  GetParam().spoil(put);
  const absl::Status status = bundles_->Put(put).status();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_EQ(ToErrorDetail(status).rule(), GetParam().rule);
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().message));
  EXPECT_FALSE(Find(Trace("a")).found());
  EXPECT_EQ(metrics_.bundles.Value("refused"), 1);
}

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

INSTANTIATE_TEST_SUITE_P(
    All, BundleDeskBadPut,
    ::testing::Values(
        BadPut{"NoTrace", [](auto& put) { put.mutable_trace()->clear_trace(); }, kInvalid, "trace", "empty"},
        BadPut{"TooLarge", [](auto& put) { put.mutable_trace()->set_trace(std::string(100 << 10, 'x')); }, kInvalid,
               "request-too-large", "limit"},
        BadPut{"UnknownMode", [](auto& put) { put.mutable_trace()->mutable_code_options()->clear_mode(); }, kInvalid,
               "unknown-mode", "default"},
        BadPut{"ForwardAlone", [](auto& put) { put.mutable_graphs()->RemoveLast(); }, kInvalid, "bundle-roles",
               "backward"},
        BadPut{"SwappedRoles", [](auto& put) { put.mutable_graphs()->SwapElements(0, 1); }, kInvalid, "bundle-roles",
               "forward and backward"},
        BadPut{"NoSuchArtifact", [](auto& put) { put.mutable_graphs(1)->set_graph_key(std::string(32, 'k')); },
               absl::StatusCode::kFailedPrecondition, "", "ROLE_BACKWARD"},
        BadPut{"ShortKey", [](auto& put) { put.mutable_graphs(1)->set_graph_key("k"); }, kInvalid, "digest", "32"},
        BadPut{"ArtifactOfAnotherRole",
               [](auto& put) { put.mutable_graphs(1)->set_graph_key(put.graphs(0).graph_key()); },
               absl::StatusCode::kFailedPrecondition, "", "another role"},
        BadPut{"ArtifactForOtherOptions",
               [](auto& put) { put.mutable_trace()->mutable_code_options()->set_deterministic(true); },
               absl::StatusCode::kFailedPrecondition, "", "other options"},
        BadPut{"OneInputTooMany", [](auto& put) { put.mutable_convention()->add_inputs(); }, kInvalid,
               "convention-counts", "inputs"},
        BadPut{"OutputsDoNotAddUp", [](auto& put) { put.mutable_convention()->set_saved_outputs(0); }, kInvalid,
               "convention-counts", "forward outputs"},
        BadPut{"NoGradient", [](auto& put) { put.mutable_convention()->clear_gradients(); }, kInvalid,
               "convention-counts", "gradients"},
        BadPut{"OneTangentTooMany", [](auto& put) { put.mutable_convention()->add_tangents(); }, kInvalid,
               "convention-counts", "tangents"},
        BadPut{"MoreUncheckedThanSaved",
               [](auto& put) { put.mutable_convention()->set_saved_without_version_check(2); }, kInvalid,
               "convention-counts", "saved_without_version_check"},
        BadPut{"StaticInputOutOfRange", [](auto& put) { put.mutable_convention()->add_static_inputs(1); }, kInvalid,
               "convention-index", "static_inputs"},
        BadPut{"DetachedInputOutOfRange", [](auto& put) { put.mutable_convention()->add_detached_inputs(9); }, kInvalid,
               "convention-index", "detached_inputs"},
        BadPut{"TangentOutOfRange", [](auto& put) { put.mutable_convention()->mutable_gradients(0)->add_tangents(1); },
               kInvalid, "convention-index", "gradients.tangents"},
        BadPut{"DonatedOutOfRange", [](auto& put) { put.mutable_convention()->add_donated_saved(1); }, kInvalid,
               "convention-index", "donated_saved"},
        BadPut{"AliasOfNothing",
               [](auto& put) { put.mutable_convention()->mutable_outputs(0)->set_kind(v1::OUTPUT_KIND_IS_INPUT); },
               kInvalid, "convention-index", "alias of nothing"},
        BadPut{"UnknownKind", [](auto& put) { put.mutable_convention()->mutable_outputs(0)->clear_kind(); }, kInvalid,
               "convention-kind", "outputs[0]"},
        BadPut{"UnknownMemoryFormat",
               [](auto& put) { put.mutable_convention()->mutable_tangents(0)->set_memory_format("__class__"); },
               kInvalid, "convention-kind", "tangents[0]"},
        BadPut{"BaseOfNoAlias", [](auto& put) { put.mutable_convention()->mutable_outputs(0)->set_base(0); }, kInvalid,
               "convention-index", "needs no base"},
        BadPut{"BaseOutOfRange",
               [](auto& put) {
                 put.mutable_convention()->mutable_outputs(0)->set_kind(v1::OUTPUT_KIND_IS_INPUT);
                 put.mutable_convention()->mutable_outputs(0)->set_base(1);
               },
               kInvalid, "convention-index", "outputs[0].base"},
        BadPut{
            "KindOfTheFuture",
            [](auto& put) { put.mutable_convention()->mutable_outputs(0)->set_kind(static_cast<v1::OutputKind>(99)); },
            kInvalid, "convention-kind", "99"},
        BadPut{"MorePositionsThanThereAre",
               [](auto& put) {
                 put.mutable_convention()->add_static_inputs(0);
                 put.mutable_convention()->add_static_inputs(0);
               },
               kInvalid, "convention-index", "2 positions of 1"},
        BadPut{"TooManyDimensions",
               [](auto& put) {
                 for (int i = 0; i < 64; ++i) {
                   put.mutable_convention()->mutable_tangents(0)->add_sizes(1);
                   put.mutable_convention()->mutable_tangents(0)->add_strides(1);
                 }
               },
               kInvalid, "convention-kind", "tangents[0]"},
        BadPut{"NegativeSize", [](auto& put) { put.mutable_convention()->mutable_tangents(0)->set_sizes(0, -1); },
               kInvalid, "convention-kind", "tangents[0]"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepone::server
