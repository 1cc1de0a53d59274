// Bundles as a client gets and tells them, against a service that misbehaves on purpose.
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/compile_client.h"
#include "fake_service.h"

namespace stepone::client {
namespace {

using ::testing::HasSubstr;

v1::TraceRequest Trace() {
  v1::TraceRequest request;
  request.set_trace("0: placeholder\n1: torch.relu(%0)");
  return request;
}

class BundleClientTest : public FakeServiceTest {
 protected:
  BundleClientTest() {
    service_.on_find_bundle = [this](grpc::ServerContext&, const v1::TraceRequest& request,
                                     v1::FindBundleResponse& response) {
      response = Answer(request, service_.key);
      return grpc::Status::OK;
    };
    config_.tenant = "team";
    client_ = std::make_unique<CompileClient>(config_);
    CompileClient::ResetProcessCounters();
  }

  // A good answer: forward and backward take one tensor and give one, and nothing is saved.
  v1::FindBundleResponse Answer(const v1::TraceRequest& request, const SigningKey& signer) const {
    v1::Bundle bundle;
    bundle.set_format_version(1);
    bundle.set_trace_key(std::string(32, 't'));
    bundle.set_trace_digest(Sha256(request.trace()).Raw());
    bundle.set_tenant(request.context().tenant());
    v1::Convention& convention = *bundle.mutable_convention();
    convention.add_inputs()->set_requires_grad(true);
    convention.add_outputs()->set_kind(v1::OUTPUT_KIND_NON_ALIAS);
    convention.add_tangents();
    convention.add_gradients();
    convention.set_has_backward(true);
    convention.set_forward_outputs(1);
    v1::FindBundleResponse response;
    response.set_found(true);
    response.set_source(v1::SOURCE_DISK);
    for (v1::Role role : {v1::ROLE_FORWARD, v1::ROLE_BACKWARD}) {
      v1::BundleGraph& graph = *bundle.add_graphs();
      graph.set_role(role);
      graph.set_graph_key(std::string(32, 'k'));
      *response.add_artifacts() = service_.MakeArtifact(signer, salt(), true, role);
    }
    response.mutable_bundle()->set_bundle(bundle.SerializeAsString());
    signer.Sign(*response.mutable_bundle());
    return response;
  }

  // What the client makes of a good answer that `spoil` has been at; signed again afterwards by the service's own key.
  absl::Status FindSpoiled(const std::function<void(v1::FindBundleResponse&, v1::Bundle&)>& spoil) {
    service_.on_find_bundle = [this, spoil](grpc::ServerContext&, const v1::TraceRequest& request,
                                            v1::FindBundleResponse& response) {
      response = Answer(request, service_.key);
      v1::Bundle bundle;
      bundle.ParseFromString(response.bundle().bundle());
      spoil(response, bundle);
      response.mutable_bundle()->set_bundle(bundle.SerializeAsString());
      service_.key.Sign(*response.mutable_bundle());
      return grpc::Status::OK;
    };
    const auto found = client_->FindBundle(Trace(), kLong);
    EXPECT_EQ(CompileClient::ProcessCounters().bundle_hits, 0);
    EXPECT_EQ(CompileClient::ProcessCounters().verify_failures, 1);
    return found.status();
  }
};

TEST_F(BundleClientTest, FindsVerifiesAndMaps) {
  v1::TraceRequest seen;
  const auto usual = service_.on_find_bundle;
  service_.on_find_bundle = [&](grpc::ServerContext& context, const v1::TraceRequest& request,
                                v1::FindBundleResponse& response) {
    seen = request;
    return usual(context, request, response);
  };
  const auto found = client_->FindBundle(Trace(), kLong);
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_TRUE(found->has_value());
  EXPECT_EQ(seen.context().tenant(), "team");
  EXPECT_EQ(seen.target().SerializeAsString(), HostTarget().SerializeAsString());
  const FoundBundle& bundle = **found;
  EXPECT_TRUE(bundle.bundle.convention().inputs(0).requires_grad());
  ASSERT_EQ(bundle.graphs.size(), 2u);
  for (const auto& graph : bundle.graphs) {
    EXPECT_EQ(graph->source, v1::SOURCE_DISK);
    float in[4] = {1, 2, 3, 4}, out[4] = {};
    void* buffers[] = {in, out};
    graph->program->kernels.functions[0](buffers, nullptr, 0, 4);
    EXPECT_EQ(out[3], 8);
  }
  EXPECT_EQ(bundle.graphs[1]->manifest.role(), v1::ROLE_BACKWARD);
  EXPECT_EQ(CompileClient::ProcessCounters().bundle_hits, 1);
}

TEST_F(BundleClientTest, AMissIsNothing) {
  service_.on_find_bundle = [](grpc::ServerContext&, const v1::TraceRequest&, v1::FindBundleResponse&) {
    return grpc::Status::OK;
  };
  const auto found = client_->FindBundle(Trace(), kLong);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->has_value());
  EXPECT_EQ(CompileClient::ProcessCounters().bundle_misses, 1);
}

TEST_F(BundleClientTest, ABundleOfAnotherSignerIsRefused) {
  service_.on_find_bundle = [this](grpc::ServerContext&, const v1::TraceRequest& request,
                                   v1::FindBundleResponse& response) {
    response = Answer(request, service_.key);
    response.mutable_bundle()->clear_signatures();
    SigningKey::Generate().Sign(*response.mutable_bundle());
    return grpc::Status::OK;
  };
  const absl::Status status = client_->FindBundle(Trace(), kLong).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bundle is signed by"));
}

TEST_F(BundleClientTest, ABundleForAnotherTraceIsRefused) {
  EXPECT_EQ(FindSpoiled([](auto&, v1::Bundle& bundle) { bundle.set_trace_digest(Sha256("other").Raw()); }).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(BundleClientTest, ABundleOfAnotherTenantIsRefused) {
  EXPECT_EQ(FindSpoiled([](auto&, v1::Bundle& bundle) { bundle.set_tenant("other"); }).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(BundleClientTest, ABundleOfAnotherFormatIsRefused) {
  const absl::Status status = FindSpoiled([](auto&, v1::Bundle& bundle) { bundle.set_format_version(2); });
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("format 2"));
}

TEST_F(BundleClientTest, AServiceThatGoesAwayInTheMiddleHasSentNothingWrong) {
  service_.on_find_bundle = [this](grpc::ServerContext&, const v1::TraceRequest& request,
                                   v1::FindBundleResponse& response) {
    response = Answer(request, service_.key);
    response.mutable_artifacts(0)->clear_objects();
    return grpc::Status::OK;
  };
  int fetches = 0;
  service_.on_fetch = [&fetches](const v1::FetchRequest&, grpc::ServerWriter<v1::FetchChunk>&) {
    ++fetches;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "going down");
  };
  EXPECT_EQ(client_->FindBundle(Trace(), kLong).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_GT(fetches, 0);
  EXPECT_EQ(CompileClient::ProcessCounters().verify_failures, 0);
}

TEST_F(BundleClientTest, ObjectsThatAreNotInlineAreFetched) {
  std::string object;
  service_.on_find_bundle = [&](grpc::ServerContext&, const v1::TraceRequest& request,
                                v1::FindBundleResponse& response) {
    response = Answer(request, service_.key);
    object = response.artifacts(0).objects(0).data();
    for (v1::Artifact& artifact : *response.mutable_artifacts()) artifact.clear_objects();
    return grpc::Status::OK;
  };
  int fetches = 0;
  service_.on_fetch = [&](const v1::FetchRequest& request, grpc::ServerWriter<v1::FetchChunk>& writer) {
    ++fetches;
    EXPECT_EQ(request.context().tenant(), "team");
    v1::FetchChunk chunk;
    chunk.set_data(object);
    chunk.set_total_bytes(object.size());
    writer.Write(chunk);
    return grpc::Status::OK;
  };
  const auto found = client_->FindBundle(Trace(), kLong);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(fetches, 1) << "both graphs have the same object";
}

TEST_F(BundleClientTest, ABundleWithAnotherArtifactThanItNamesIsRefused) {
  EXPECT_EQ(FindSpoiled([](auto&, v1::Bundle& bundle) {
              bundle.mutable_graphs(1)->set_graph_key(std::string(32, 'x'));
            }).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(BundleClientTest, ABundleWithoutItsArtifactsIsRefused) {
  EXPECT_EQ(
      FindSpoiled([](v1::FindBundleResponse& response, auto&) { response.mutable_artifacts()->RemoveLast(); }).code(),
      absl::StatusCode::kDataLoss);
}

TEST_F(BundleClientTest, AConventionThatDoesNotFitItsPlanIsRefused) {
  EXPECT_EQ(FindSpoiled([](auto&, v1::Bundle& bundle) { bundle.mutable_convention()->add_inputs(); }).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(BundleClientTest, ADamagedObjectIsRefused) {
  EXPECT_EQ(FindSpoiled([](v1::FindBundleResponse& response, auto&) {
              std::string& data = *response.mutable_artifacts(1)->mutable_objects(0)->mutable_data();
              data.back() = static_cast<char>(data.back() ^ 1);
              // As if the first graph had not brought the same object.
              response.mutable_artifacts(0)->mutable_objects(0)->set_data(data);
            }).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(BundleClientTest, ASlowServiceMeetsTheTimeout) {
  absl::Notification asked;
  service_.on_find_bundle = [&asked](grpc::ServerContext& context, const v1::TraceRequest&, v1::FindBundleResponse&) {
    asked.Notify();
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    return grpc::Status::OK;
  };
  EXPECT_EQ(client_->FindBundle(Trace(), absl::Milliseconds(300)).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(asked.HasBeenNotified());
}

TEST_F(BundleClientTest, WhatIsToldLastIsStillSent) {
  absl::Notification told;
  v1::PutBundleRequest seen;
  service_.on_put_bundle = [&](grpc::ServerContext&, const v1::PutBundleRequest& request) {
    seen = request;
    told.Notify();
    return grpc::Status::OK;
  };
  v1::PutBundleRequest put;
  *put.mutable_trace() = Trace();
  put.mutable_convention()->set_forward_outputs(3);
  client_->PutBundle(put);
  client_.reset();
  ASSERT_TRUE(told.HasBeenNotified());
  EXPECT_EQ(seen.trace().context().tenant(), "team");
  EXPECT_EQ(seen.convention().forward_outputs(), 3u);
  EXPECT_EQ(CompileClient::ProcessCounters().bundles_put, 1);
}

TEST_F(BundleClientTest, WhatCannotBeToldIsCounted) {
  ClientConfig config = config_;
  config.isa = "z80";
  CompileClient client(config);
  v1::PutBundleRequest put;
  *put.mutable_trace() = Trace();
  client.PutBundle(put);
  EXPECT_EQ(CompileClient::ProcessCounters().bundle_put_failures, 1);
}

TEST_F(BundleClientTest, AServiceThatDoesNotListenHoldsNobodyUp) {
  bool cut_short = false;
  service_.on_put_bundle = [&cut_short](grpc::ServerContext& context, const v1::PutBundleRequest&) {
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(1));
    cut_short = std::chrono::system_clock::now() < context.deadline();
    return grpc::Status::OK;
  };
  v1::PutBundleRequest put;
  *put.mutable_trace() = Trace();
  client_->PutBundle(put);
  client_.reset();
  EXPECT_EQ(CompileClient::ProcessCounters().bundle_put_failures, 1);
  server_->Shutdown();  // waits for the handler
  EXPECT_TRUE(cut_short) << "the client waited until the call's own deadline";
}

TEST_F(BundleClientTest, ConnectsAheadOfTheFirstRequest) {
  client_->Connect();
  const auto found = client_->FindBundle(Trace(), kLong);
  EXPECT_TRUE(found.ok()) << found.status();
}

}  // namespace
}  // namespace stepone::client
