// The client against a service that misbehaves on purpose.
#include "client/compile_client.h"

#include <sys/stat.h>
#include <chrono>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "client/circuit_breaker.h"
#include "fake_service.h"
#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

using ::testing::HasSubstr;

v1::CompileRequest Request() {
  v1::CompileRequest request;
  v1::Graph& graph = *request.mutable_graph();
  graph.set_role(v1::ROLE_FORWARD);
  graph.add_inputs(0);
  graph.add_outputs()->set_value(0);
  return request;
}

class CompileClientTest : public FakeServiceTest {
 protected:
  CompileClientTest() {
    service_.on_compile = [this](grpc::ServerContext&, const v1::CompileRequest&, EventWriter& writer) {
      FakeService::Accept(writer, "op");
      FakeService::Done(writer, service_.MakeArtifact(service_.key, salt()));
      return grpc::Status::OK;
    };
  }

  // The end of one request.
  std::shared_ptr<CompileCall> Get(v1::CompileRequest request = Request()) {
    client_ = std::make_unique<CompileClient>(config_);
    std::shared_ptr<CompileCall> call = client_->Submit(std::move(request));
    EXPECT_TRUE(call->Wait(kLong));
    return call;
  }
};

std::vector<CallEvent::Kind> Kinds(const CompileCall& call) {
  std::vector<CallEvent::Kind> kinds;
  for (const CallEvent& event : call.events()) kinds.push_back(event.kind);
  return kinds;
}

TEST_F(CompileClientTest, CompilesVerifiesAndMaps) {
  v1::CompileRequest seen;
  const auto usual = service_.on_compile;
  service_.on_compile = [&](grpc::ServerContext& context, const v1::CompileRequest& request, EventWriter& writer) {
    seen = request;
    return usual(context, request, writer);
  };
  config_.tenant = "team";
  const auto call = Get();
  ASSERT_TRUE(call->status().ok()) << call->status();
  const auto graph = call->result();
  EXPECT_EQ(graph->source, v1::SOURCE_COMPILED);
  EXPECT_EQ(graph->compile_ms, 5);
  EXPECT_EQ(graph->attempts, 1);
  float in[4] = {1, 2, 3, 4}, out[4] = {};
  void* buffers[] = {in, out};
  graph->program->kernels.functions[0](buffers, nullptr, 0, 4);
  EXPECT_EQ(out[3], 8);
  EXPECT_EQ(seen.context().tenant(), "team");
  EXPECT_EQ(seen.target().isa(), HostTarget().isa());
  EXPECT_THAT(Kinds(*call), ::testing::ElementsAre(CallEvent::Kind::kAccepted, CallEvent::Kind::kDone));
}

TEST_F(CompileClientTest, TwoRequestsAreUnderWayTogether) {
  absl::Notification both;
  absl::Mutex mutex;
  int waiting = 0;
  service_.on_compile = [&](grpc::ServerContext&, const v1::CompileRequest&, EventWriter& writer) {
    {
      absl::MutexLock lock(&mutex);
      if (++waiting == 2) both.Notify();
    }
    both.WaitForNotificationWithTimeout(kLong);
    FakeService::Done(writer, service_.MakeArtifact(service_.key, salt()));
    return grpc::Status::OK;
  };
  CompileClient client(config_);
  const auto forward = client.Submit(Request()), backward = client.Submit(Request());
  EXPECT_TRUE(forward->Wait(kLong) && backward->Wait(kLong));
  EXPECT_TRUE(forward->status().ok() && backward->status().ok());
  EXPECT_TRUE(both.HasBeenNotified());
}

TEST_F(CompileClientTest, ABrokenStreamIsAttachedToAgain) {
  service_.on_compile = [](grpc::ServerContext&, const v1::CompileRequest&, EventWriter& writer) {
    FakeService::Accept(writer, "op-7");
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection lost");
  };
  std::string operation;
  service_.on_attach = [&](grpc::ServerContext&, const v1::AttachRequest& request, EventWriter& writer) {
    operation = request.operation();
    FakeService::Done(writer, service_.MakeArtifact(service_.key, salt()));
    return grpc::Status::OK;
  };
  const auto call = Get();
  EXPECT_TRUE(call->status().ok()) << call->status();
  EXPECT_EQ(operation, "op-7");
  EXPECT_EQ(service_.compiles(), 1);
  EXPECT_EQ(call->result()->attempts, 2);
  EXPECT_THAT(Kinds(*call),
              ::testing::ElementsAre(CallEvent::Kind::kAccepted, CallEvent::Kind::kRetry, CallEvent::Kind::kDone));
}

TEST_F(CompileClientTest, AForgottenOperationIsAskedForAnew) {
  const auto usual = service_.on_compile;
  service_.on_compile = [&](grpc::ServerContext& context, const v1::CompileRequest& request, EventWriter& writer) {
    if (service_.compiles() > 1) return usual(context, request, writer);
    FakeService::Accept(writer, "lost");
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "");
  };
  service_.on_attach = [](grpc::ServerContext&, const v1::AttachRequest&, EventWriter&) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such operation");
  };
  EXPECT_TRUE(Get()->status().ok());
  EXPECT_EQ(service_.compiles(), 2);
  EXPECT_EQ(service_.attaches(), 1);
}

TEST_F(CompileClientTest, WaitsAsLongAsTheServiceSays) {
  const auto usual = service_.on_compile;
  service_.on_compile = [&](grpc::ServerContext& context, const v1::CompileRequest& request, EventWriter& writer) {
    if (service_.compiles() > 1) return usual(context, request, writer);
    v1::CompileEvent event;
    event.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
    event.mutable_failed()->set_retry_after_ms(300);
    writer.Write(event);
    return grpc::Status::OK;
  };
  const auto call = Get();
  EXPECT_TRUE(call->status().ok()) << call->status();
  ASSERT_EQ(call->events()[0].kind, CallEvent::Kind::kRetry);
  EXPECT_EQ(call->events()[0].first, 300);
}

TEST_F(CompileClientTest, ABadRequestIsNotRepeatedAndKeepsItsDetail) {
  service_.on_compile = [](grpc::ServerContext& context, const v1::CompileRequest&, EventWriter&) {
    const v1::ErrorDetail detail = ToErrorDetail(InvalidNode("add_3", "type-mismatch", "sizes differ"));
    context.AddTrailingMetadata("stepone-error-bin", detail.SerializeAsString());
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "sizes differ");
  };
  const auto call = Get();
  EXPECT_EQ(call->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ToErrorDetail(call->status()).node(), "add_3");
  EXPECT_EQ(ToErrorDetail(call->status()).rule(), "type-mismatch");
  EXPECT_EQ(service_.compiles(), 1);
  EXPECT_EQ(call->result(), nullptr);
}

TEST_F(CompileClientTest, AFailedCompileIsTheAnswer) {
  service_.on_compile = [](grpc::ServerContext&, const v1::CompileRequest&, EventWriter& writer) {
    v1::CompileEvent event;
    event.mutable_failed()->set_code(static_cast<int>(absl::StatusCode::kInternal));
    event.mutable_failed()->set_reproducer_id("crash-1");
    writer.Write(event);
    return grpc::Status::OK;
  };
  const auto call = Get();
  EXPECT_EQ(call->status().code(), absl::StatusCode::kInternal);
  EXPECT_EQ(ToErrorDetail(call->status()).reproducer_id(), "crash-1");
}

TEST_F(CompileClientTest, ASlowServiceMeetsTheDeadline) {
  absl::Notification over;
  service_.on_compile = [&](grpc::ServerContext& context, const v1::CompileRequest&, EventWriter& writer) {
    FakeService::Accept(writer, "slow");
    while (!context.IsCancelled() && !over.WaitForNotificationWithTimeout(absl::Milliseconds(10))) {
    }
    return grpc::Status::CANCELLED;
  };
  v1::CompileRequest request = Request();
  request.mutable_run_options()->set_deadline_ms(300);
  const auto call = Get(std::move(request));
  EXPECT_EQ(call->status().code(), absl::StatusCode::kDeadlineExceeded) << call->status();
  over.Notify();
}

TEST_F(CompileClientTest, AStreamWithoutAnAnswerIsTriedAgainUntilTheDeadline) {
  service_.on_compile = [](grpc::ServerContext&, const v1::CompileRequest&, EventWriter&) { return grpc::Status::OK; };
  config_.request_timeout_ms = 1000;
  v1::CompileRequest request = Request();
  request.mutable_run_options()->set_blocking_step(true);
  const auto call = Get(std::move(request));
  EXPECT_EQ(call->status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(call->status().message()), HasSubstr("without an answer"));
  EXPECT_GT(service_.compiles(), 1);
}

TEST_F(CompileClientTest, WhatNoStepWaitsForHasLonger) {
  std::chrono::system_clock::time_point deadline;
  service_.on_compile = [&](grpc::ServerContext& context, const v1::CompileRequest&, EventWriter&) {
    deadline = context.deadline();
    return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "that is all");
  };
  config_.request_timeout_ms = 3'600'000;
  const auto hours = [&](bool blocking) {
    v1::CompileRequest request = Request();
    request.mutable_run_options()->set_blocking_step(blocking);
    const auto before = std::chrono::system_clock::now();
    EXPECT_EQ(Get(std::move(request))->status().code(), absl::StatusCode::kInvalidArgument);
    return std::chrono::round<std::chrono::hours>(deadline - before).count();
  };
  EXPECT_EQ(hours(true), 1);
  EXPECT_EQ(hours(false), 20);
}

TEST_F(CompileClientTest, CancelEndsTheCallAndTellsTheService) {
  absl::Notification started;
  service_.on_compile = [&](grpc::ServerContext& context, const v1::CompileRequest&, EventWriter& writer) {
    FakeService::Accept(writer, "long");
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  };
  CompileClient client(config_);
  const auto call = client.Submit(Request(), [&](const CallEvent& event) {
    if (event.kind == CallEvent::Kind::kAccepted) started.Notify();
  });
  EXPECT_FALSE(call->Done());
  EXPECT_EQ(call->status().code(), absl::StatusCode::kUnavailable);
  started.WaitForNotification();
  call->Cancel();
  EXPECT_TRUE(call->Wait(kLong));
  EXPECT_EQ(call->status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(service_.cancels(), 1);
}

TEST_F(CompileClientTest, ADestroyedClientLeavesNoRequestBehind) {
  absl::Notification started;
  service_.on_compile = [&](grpc::ServerContext& context, const v1::CompileRequest&, EventWriter& writer) {
    FakeService::Accept(writer, "long");
    while (!context.IsCancelled()) absl::SleepFor(absl::Milliseconds(5));
    return grpc::Status::CANCELLED;
  };
  auto client = std::make_unique<CompileClient>(config_);
  const auto call = client->Submit(Request(), [&](const CallEvent& event) {
    if (event.kind == CallEvent::Kind::kAccepted) started.Notify();
  });
  started.WaitForNotification();
  client.reset();
  EXPECT_TRUE(call->Done());
  EXPECT_EQ(call->status().code(), absl::StatusCode::kCancelled);
}

TEST_F(CompileClientTest, AnArtifactOfAnotherSignerIsRefused) {
  const SigningKey stranger = SigningKey::Generate();
  service_.on_compile = [&](grpc::ServerContext&, const v1::CompileRequest&, EventWriter& writer) {
    FakeService::Done(writer, service_.MakeArtifact(stranger, salt()));
    return grpc::Status::OK;
  };
  const auto call = Get();
  EXPECT_EQ(call->status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(service_.compiles(), 1);
}

TEST_F(CompileClientTest, ANewKeyOfTheOwnServerIsLearned) {
  CompileClient client(config_);
  ASSERT_TRUE(client.GetCapabilities().ok());
  service_.key = SigningKey::Generate();
  const auto call = client.Submit(Request());
  EXPECT_TRUE(call->Wait(kLong));
  EXPECT_TRUE(call->status().ok()) << call->status();
}

TEST_F(CompileClientTest, ADamagedArtifactIsAskedForOnceMore) {
  bool recompile = false;
  service_.on_compile = [&](grpc::ServerContext&, const v1::CompileRequest& request, EventWriter& writer) {
    v1::Artifact artifact = service_.MakeArtifact(service_.key, salt());
    recompile = request.run_options().recompile();
    if (!recompile) (*artifact.mutable_objects(0)->mutable_data())[100] ^= 1;
    FakeService::Done(writer, std::move(artifact));
    return grpc::Status::OK;
  };
  const auto call = Get();
  EXPECT_TRUE(call->status().ok()) << call->status();
  EXPECT_TRUE(recompile);
  EXPECT_EQ(service_.compiles(), 2);
}

TEST_F(CompileClientTest, ObjectsThatDoNotTravelInlineAreFetchedAndResumed) {
  service_.on_compile = [this](grpc::ServerContext&, const v1::CompileRequest&, EventWriter& writer) {
    FakeService::Done(writer, service_.MakeArtifact(service_.key, salt(), /*with_object=*/false));
    return grpc::Status::OK;
  };
  const std::string bytes = TestKernelObject() + salt();
  std::vector<uint64_t> offsets;
  service_.on_fetch = [&](const v1::FetchRequest& request, grpc::ServerWriter<v1::FetchChunk>& writer) {
    offsets.push_back(request.offset());
    v1::FetchChunk chunk;
    chunk.set_data(bytes.substr(request.offset(), 1000));
    writer.Write(chunk);
    if (offsets.size() < 2) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "broken off");
    chunk.set_data(bytes.substr(request.offset() + 1000));
    writer.Write(chunk);
    return grpc::Status::OK;
  };
  const auto call = Get();
  EXPECT_TRUE(call->status().ok()) << call->status();
  EXPECT_THAT(offsets, ::testing::ElementsAre(0, 1000));
}

TEST_F(CompileClientTest, AFetchThatNeverEndsIsRefused) {
  service_.on_compile = [this](grpc::ServerContext&, const v1::CompileRequest&, EventWriter& writer) {
    FakeService::Done(writer, service_.MakeArtifact(service_.key, salt(), /*with_object=*/false));
    return grpc::Status::OK;
  };
  service_.on_fetch = [&](const v1::FetchRequest&, grpc::ServerWriter<v1::FetchChunk>& writer) {
    v1::FetchChunk chunk;
    chunk.set_data(std::string(1 << 20, 'x'));
    while (writer.Write(chunk)) {
    }
    return grpc::Status::OK;
  };
  const auto call = Get();
  EXPECT_EQ(call->status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(call->status().message()), HasSubstr("larger than its manifest"));
}

TEST_F(CompileClientTest, MappedObjectsAreNotSentAgain) {
  const auto first = Get();
  ASSERT_TRUE(first->status().ok());
  const std::string digest = Sha256(TestKernelObject() + salt()).Raw();
  bool known = false;
  service_.on_compile = [&](grpc::ServerContext&, const v1::CompileRequest& request, EventWriter& writer) {
    for (const std::string& object : request.known_objects()) known |= object == digest;
    FakeService::Done(writer, service_.MakeArtifact(service_.key, salt(), /*with_object=*/false), v1::SOURCE_MEMORY);
    return grpc::Status::OK;
  };
  const auto second = Get();
  EXPECT_TRUE(second->status().ok()) << second->status();
  EXPECT_TRUE(known);
  EXPECT_EQ(second->result()->source, v1::SOURCE_MEMORY);
  EXPECT_EQ(first->result()->program->kernels.functions[0], second->result()->program->kernels.functions[0]);
}

TEST_F(CompileClientTest, ADeadEndpointCostsOneConnectTimeoutForAllGraphs) {
  Stop();
  config_.connect_timeout_ms = 400;
  CompileClient client(config_);
  std::vector<std::shared_ptr<CompileCall>> calls;
  for (int i = 0; i < 50; ++i) calls.push_back(client.Submit(Request()));
  for (const auto& call : calls) {
    EXPECT_TRUE(call->Wait(kLong));
    EXPECT_EQ(call->status().code(), absl::StatusCode::kUnavailable);
  }
  EXPECT_TRUE(client.circuit_open());
  const auto late = client.Submit(Request());
  EXPECT_TRUE(late->Wait(kLong));
  EXPECT_THAT(std::string(late->status().message()), HasSubstr("not tried again for"));
  // One of them waited; the others were answered by the open circuit.

  int refused = 0;
  for (const auto& call : calls) {
    if (std::string(call->status().message()).find("not tried again") == 0) ++refused;
  }
  EXPECT_EQ(refused, 49);
}

TEST_F(CompileClientTest, AServerThatComesBackIsFoundAgain) {
  CompileClient client(config_);
  ASSERT_TRUE(client.GetCapabilities().ok());
  Stop();
  const auto call = client.Submit(Request());
  Start();
  EXPECT_TRUE(call->Wait(kLong));
  EXPECT_TRUE(call->status().ok()) << call->status();
}

TEST_F(CompileClientTest, ASharedSocketNeedsAKeyOfTheServer) {
  chmod(folder_.c_str(), 0755);
  auto call = Get();
  EXPECT_EQ(call->status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(call->status().message()), HasSubstr("STEPONE_TRUSTED_KEYS"));
  config_.trusted_keys = {service_.key.public_key()};
  call = Get();
  EXPECT_TRUE(call->status().ok()) << call->status();
  chmod(folder_.c_str(), 0700);
}

TEST_F(CompileClientTest, FindAnswersWithoutACompile) {
  service_.on_find = [&](const v1::CompileRequest&, v1::FindResponse& response) {
    response.set_found(true);
    *response.mutable_artifact() = service_.MakeArtifact(service_.key, salt());
    return grpc::Status::OK;
  };
  CompileClient client(config_);
  const auto hit = client.Find(Request());
  ASSERT_TRUE(hit.ok()) << hit.status();
  EXPECT_TRUE((*hit)->status().ok());
  service_.on_find = [](const v1::CompileRequest&, v1::FindResponse&) { return grpc::Status::OK; };
  const auto miss = client.Find(Request());
  ASSERT_TRUE(miss.ok());
  EXPECT_EQ(*miss, nullptr);
  EXPECT_EQ(service_.compiles(), 0);
}

TEST_F(CompileClientTest, AnInstructionSetAboveTheHostsIsRefusedBeforeAnythingIsSent) {
  config_.isa = "x86-64-v9";
  const auto call = Get();
  EXPECT_EQ(call->status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(service_.compiles(), 0);
}

TEST(CircuitBreakerTest, OpensProbesAndLengthensItsPause) {
  CircuitBreaker breaker(absl::Seconds(5), absl::Seconds(12));
  absl::Time now = absl::UnixEpoch();
  const absl::Status down = absl::UnavailableError("down");
  EXPECT_TRUE(breaker.Allow(now).ok());
  breaker.Failure(now, down);
  breaker.Failure(now, down);  // a request that was under way at the same time
  EXPECT_TRUE(breaker.open(now));
  EXPECT_THAT(std::string(breaker.Allow(now + absl::Seconds(4)).message()), HasSubstr("down"));
  now += absl::Seconds(5);
  EXPECT_TRUE(breaker.Allow(now).ok());   // the probe
  EXPECT_FALSE(breaker.Allow(now).ok());  // nobody else meanwhile
  breaker.Failure(now, down);
  EXPECT_FALSE(breaker.Allow(now + absl::Seconds(9)).ok());
  now += absl::Seconds(10);
  EXPECT_TRUE(breaker.Allow(now).ok());
  breaker.Failure(now, down);
  EXPECT_FALSE(breaker.Allow(now + absl::Seconds(11)).ok());
  now += absl::Seconds(12);  // the longest pause
  EXPECT_TRUE(breaker.Allow(now).ok());
  breaker.Success();
  EXPECT_FALSE(breaker.open(now));
  EXPECT_TRUE(breaker.Allow(now).ok());
}

}  // namespace
}  // namespace stepone::client
