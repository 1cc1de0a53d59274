// The service as a client sees it: a real server process, gRPC, a worker with a scripted compiler.
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "gtest/gtest.h"
#include "proto/digest.h"
#include "proto/signing.h"
#include "tests/testlib/sample_request.h"
#include "tests/testlib/server_under_test.h"

namespace stepone {
namespace {

using testing::Attach;
using testing::AwaitFile;
using testing::Compile;
using ::testing::ElementsAre;
using testing::FreshFolder;
using ::testing::HasSubstr;
using testing::Health;
using testing::NewChannel;
using testing::Reflect;
using testing::SampleBundle;
using testing::SampleRequest;
using testing::ServerUnderTest;
using testing::StreamResult;
using testing::Touch;

class ServerProtocolTest : public ::testing::Test {
 protected:
  ~ServerProtocolTest() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }
  ServerUnderTest& Start(std::vector<std::string> options = {}) {
    server_ = std::make_unique<ServerUnderTest>(STEPONE_SERVER, STEPONE_FAKE_WORKER, folder_, std::move(options));
    return *server_;
  }
  std::string Scratch(const std::string& name) const { return folder_ + "/state/scratch/" + name; }

  const std::string folder_ = FreshFolder();
  std::unique_ptr<ServerUnderTest> server_;
};

TEST_F(ServerProtocolTest, CapabilitiesOverTcpAndUnixSocket) {
  ServerUnderTest& server = Start();
  for (const std::string& address : {server.tcp(), server.unix_socket()}) {
    auto stub = v1::CompileService::NewStub(NewChannel(address));
    grpc::ClientContext context;
    v1::GetCapabilitiesResponse response;
    const grpc::Status status = stub->GetCapabilities(&context, {}, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.compiler_fingerprint(), "fake 1");
    EXPECT_EQ(response.public_key().size(), 32u);
    EXPECT_THAT(response.modes(),
                ElementsAre("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"));
    EXPECT_EQ(Health(address, ""), 1);
    EXPECT_EQ(Health(address, "stepone.v1.CompileService"), 1);
  }
  struct stat info;
  ASSERT_EQ(stat((folder_ + "/s.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat((folder_ + "/state").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(ServerProtocolTest, ReflectionListsAndDescribesTheService) {
  ServerUnderTest& server = Start();
  // ServerReflectionRequest, written by hand: 7 is list_services, 4 is file_containing_symbol.
  const std::string services = Reflect(server.tcp(), std::string("\x3a\x00", 2));
  EXPECT_THAT(services, HasSubstr("stepone.v1.CompileService"));
  EXPECT_THAT(services, HasSubstr("grpc.health.v1.Health"));
  const std::string file = Reflect(server.tcp(), "\x22\x19stepone.v1.CompileService");
  EXPECT_THAT(file, HasSubstr("stepone/v1/compile_service.proto"));
  for (const char* method : {"GetCapabilities", "Find", "Compile", "Attach", "Cancel", "Fetch", "Explain"}) {
    EXPECT_THAT(file, HasSubstr(method));
  }
}

TEST_F(ServerProtocolTest, CompileFindFetchExplain) {
  ServerUnderTest& server = Start({"--inline-object-kb=1"});
  auto stub = server.stub();
  v1::CompileRequest request = SampleRequest(8);
  (*request.mutable_code_options()->mutable_backend_options())["fake.bytes"] = "300000";
  const StreamResult cold = Compile(*stub, request);
  ASSERT_TRUE(cold.status.ok()) << cold.status.error_message();
  ASSERT_TRUE(cold.done.has_value());
  EXPECT_EQ(cold.done->source(), v1::SOURCE_COMPILED);
  EXPECT_TRUE(cold.events.front().has_accepted());

  grpc::ClientContext find_context;
  v1::FindResponse found;
  ASSERT_TRUE(stub->Find(&find_context, request, &found).ok());
  EXPECT_TRUE(found.found());
  EXPECT_EQ(found.artifact().SerializeAsString(), cold.done->artifact().SerializeAsString());
  v1::Manifest manifest;
  ASSERT_TRUE(manifest.ParseFromString(found.artifact().signed_manifest().manifest()));
  ASSERT_EQ(manifest.objects_size(), 2);

  // Each object in chunks, once from the start and once from an offset.
  for (const uint64_t offset : {uint64_t{0}, uint64_t{299'999}, uint64_t{300'000}}) {
    grpc::ClientContext context;
    v1::FetchRequest fetch;
    fetch.set_digest(manifest.objects(0).digest());
    fetch.set_offset(offset);
    auto reader = stub->Fetch(&context, fetch);
    std::string bytes;
    v1::FetchChunk chunk;
    int chunks = 0;
    while (reader->Read(&chunk)) {
      EXPECT_EQ(chunk.total_bytes(), 300'000u);
      bytes += chunk.data();
      ++chunks;
    }
    ASSERT_TRUE(reader->Finish().ok());
    EXPECT_EQ(bytes.size(), 300'000 - offset);
    if (offset == 0) {
      EXPECT_EQ(Sha256(bytes).Raw(), manifest.objects(0).digest());
      EXPECT_GT(chunks, 1);
    }
  }
  grpc::ClientContext missing_context;
  v1::FetchRequest missing;
  missing.set_digest(Sha256("nothing").Raw());
  auto reader = stub->Fetch(&missing_context, missing);
  v1::FetchChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), grpc::NOT_FOUND);

  request.mutable_code_options()->set_mode(v1::MODE_MAX_AUTOTUNE);
  grpc::ClientContext explain_context;
  v1::ExplainResponse explained;
  ASSERT_TRUE(stub->Explain(&explain_context, request, &explained).ok());
  EXPECT_FALSE(explained.found());
  ASSERT_EQ(explained.differences_size(), 1);
  EXPECT_THAT(explained.differences(0).field(), HasSubstr("mode"));
}

TEST_F(ServerProtocolTest, PutFindExplainBundle) {
  auto stub = Start().stub();
  const v1::CompileRequest request = SampleRequest(8, "ok", "", v1::ROLE_INFERENCE);
  const StreamResult compiled = Compile(*stub, request);
  ASSERT_TRUE(compiled.status.ok()) << compiled.status.error_message();
  const v1::Artifact& artifact = compiled.done->artifact();
  const v1::PutBundleRequest put = SampleBundle(request, "a\nb", artifact.signed_manifest().graph_key());
  {
    grpc::ClientContext context;
    v1::FindBundleResponse found;
    ASSERT_TRUE(stub->FindBundle(&context, put.trace(), &found).ok());
    EXPECT_FALSE(found.found());
  }
  for (const bool first : {true, false}) {
    grpc::ClientContext context;
    v1::PutBundleResponse response;
    const grpc::Status status = stub->PutBundle(&context, put, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.stored(), first);
  }
  grpc::ClientContext find_context;
  v1::FindBundleResponse found;
  ASSERT_TRUE(stub->FindBundle(&find_context, put.trace(), &found).ok());
  ASSERT_TRUE(found.found());
  ASSERT_EQ(found.artifacts_size(), 1);
  EXPECT_EQ(found.artifacts(0).SerializeAsString(), artifact.SerializeAsString());

  v1::TraceRequest other = put.trace();
  other.set_trace("a\nc");
  grpc::ClientContext explain_context;
  v1::ExplainResponse explained;
  ASSERT_TRUE(stub->ExplainBundle(&explain_context, other, &explained).ok());
  ASSERT_EQ(explained.differences_size(), 1);
  EXPECT_EQ(explained.differences(0).requested(), "c");

  v1::PutBundleRequest wrong = put;
  wrong.mutable_convention()->add_inputs();
  grpc::ClientContext wrong_context;
  v1::PutBundleResponse response;
  EXPECT_EQ(stub->PutBundle(&wrong_context, wrong, &response).error_code(), grpc::INVALID_ARGUMENT);
}

TEST_F(ServerProtocolTest, ErrorsCarryTheirDetail) {
  auto stub = Start({"--max-request-mb=1"}).stub();
  v1::CompileRequest request = SampleRequest(8);
  request.mutable_graph()->mutable_nodes(0)->set_op("no.overload");
  StreamResult result = Compile(*stub, request);
  EXPECT_EQ(result.status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(result.detail.rule(), "op-name");
  EXPECT_EQ(result.detail.node(), "relu");
  EXPECT_EQ(result.detail.code(), static_cast<int>(grpc::INVALID_ARGUMENT));

  request = SampleRequest(8);
  request.mutable_code_options()->set_backend("unheard-of");
  result = Compile(*stub, request);
  EXPECT_THAT(result.detail.known_values(), ElementsAre("stepone"));

  request = SampleRequest(8);
  request.mutable_graph()->mutable_nodes(0)->set_diagnostics(std::string(1 << 20, 'x'));
  result = Compile(*stub, request);
  EXPECT_EQ(result.status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_EQ(result.detail.rule(), "request-too-large");

  result = Compile(*stub, SampleRequest(8, "unimplemented"));
  EXPECT_EQ(result.status.error_code(), grpc::UNIMPLEMENTED);
  ASSERT_FALSE(result.events.empty());
  EXPECT_EQ(result.events.back().failed().code(), static_cast<int>(grpc::UNIMPLEMENTED));
}

TEST_F(ServerProtocolTest, AClientThatDropsComesBackToTheSameCompile) {
  ServerUnderTest& server = Start();
  auto stub = server.stub();
  v1::CompileRequest request = SampleRequest(8, "gate", Scratch("gate"));
  (*request.mutable_code_options()->mutable_backend_options())["fake.journal"] = Scratch("journal");
  const StreamResult broken = Compile(*stub, request, [](const v1::CompileEvent& event, grpc::ClientContext& context) {
    if (event.has_stage()) context.TryCancel();
  });
  EXPECT_EQ(broken.status.error_code(), grpc::CANCELLED);

  v1::AttachRequest attach;
  *attach.mutable_context() = request.context();
  attach.set_operation(broken.operation);
  std::thread opener([this] {
    AwaitFile(Scratch("journal"), 1);
    Touch(Scratch("gate"));
  });
  const StreamResult again = Attach(*stub, attach);
  opener.join();
  ASSERT_TRUE(again.status.ok()) << again.status.error_message();
  EXPECT_EQ(again.done->source(), v1::SOURCE_COMPILED);
  EXPECT_EQ(testing::CountLines(Scratch("journal")), 1);

  attach.set_operation("unknown");
  EXPECT_EQ(Attach(*stub, attach).status.error_code(), grpc::NOT_FOUND);
}

TEST_F(ServerProtocolTest, CancelEndsOneOperation) {
  auto stub = Start().stub();
  bool cancelled = false;
  const StreamResult result = Compile(*stub, SampleRequest(8, "gate", Scratch("never")),
                                      [&](const v1::CompileEvent& event, grpc::ClientContext&) {
                                        if (!event.has_stage() || cancelled) return;
                                        grpc::ClientContext context;
                                        v1::CancelRequest cancel;
                                        cancel.mutable_context()->set_tenant("t");
                                        cancel.set_operation(event.operation());
                                        v1::CancelResponse response;
                                        ASSERT_TRUE(stub->Cancel(&context, cancel, &response).ok());
                                        cancelled = response.cancelled();
                                      });
  EXPECT_TRUE(cancelled);
  EXPECT_EQ(result.status.error_code(), grpc::CANCELLED);
}

TEST_F(ServerProtocolTest, TokensDecideTheTenant) {
  const std::string tokens = folder_ + "/tokens";
  std::ofstream(tokens) << "open-sesame t\n";
  chmod(tokens.c_str(), 0600);
  auto stub = Start({"--token-file=" + tokens}).stub();
  EXPECT_EQ(Compile(*stub, SampleRequest(8)).status.error_code(), grpc::UNAUTHENTICATED);
  EXPECT_TRUE(Compile(*stub, SampleRequest(8), nullptr, "open-sesame").status.ok());
  v1::CompileRequest other = SampleRequest(8);
  other.mutable_context()->set_tenant("u");
  EXPECT_EQ(Compile(*stub, other, nullptr, "open-sesame").status.error_code(), grpc::PERMISSION_DENIED);

  for (const auto& [token, tenant, code] : {std::tuple{"", "t", grpc::UNAUTHENTICATED},
                                            {"open-sesame", "u", grpc::PERMISSION_DENIED},
                                            {"open-sesame", "t", grpc::OK}}) {
    v1::PutBundleRequest put = SampleBundle(SampleRequest(8), "a", std::string(32, 'k'));
    put.mutable_trace()->mutable_context()->set_tenant(tenant);
    grpc::ClientContext put_context, find_context, explain_context;
    for (grpc::ClientContext* context : {&put_context, &find_context, &explain_context}) {
      if (*token != '\0') context->AddMetadata("authorization", std::string("Bearer ") + token);
    }
    v1::PutBundleResponse put_response;
    v1::FindBundleResponse find_response;
    v1::ExplainResponse explain_response;
    EXPECT_EQ(stub->FindBundle(&find_context, put.trace(), &find_response).error_code(), code);
    EXPECT_EQ(stub->ExplainBundle(&explain_context, put.trace(), &explain_response).error_code(), code);
    // Who may tell is told what is wrong with it.
    EXPECT_EQ(stub->PutBundle(&put_context, put, &put_response).error_code(),
              code == grpc::OK ? grpc::FAILED_PRECONDITION : code);
  }
}

TEST_F(ServerProtocolTest, Tls) {
  const std::string key = folder_ + "/key.pem", cert = folder_ + "/cert.pem";
  ASSERT_EQ(std::system(("openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext "
                         "subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout " +
                         key + " -out " + cert + " 2>/dev/null")
                            .c_str()),
            0);
  ServerUnderTest& server = Start({"--tls-cert=" + cert, "--tls-key=" + key});
  std::ifstream in(cert);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs.assign((std::istreambuf_iterator<char>(in)), {});
  auto secure = v1::CompileService::NewStub(grpc::CreateChannel(server.tcp(), grpc::SslCredentials(options)));
  EXPECT_TRUE(Compile(*secure, SampleRequest(8)).status.ok());
  EXPECT_EQ(Compile(*server.stub(), SampleRequest(8)).status.error_code(), grpc::UNAVAILABLE);
}

TEST_F(ServerProtocolTest, DrainFinishesWhatRunsAndRefusesWhatIsNew) {
  ServerUnderTest& server = Start();
  auto stub = server.stub();
  StreamResult running;
  std::thread client([&] {
    v1::CompileRequest request = SampleRequest(1, "gate", Scratch("gate"));
    (*request.mutable_code_options()->mutable_backend_options())["fake.journal"] = Scratch("journal");
    running = Compile(*stub, request);
  });
  AwaitFile(Scratch("journal"), 1);
  server.Signal(SIGTERM);
  while (Health(server.tcp(), "stepone.v1.CompileService") == 1) absl::SleepFor(absl::Milliseconds(3));
  const StreamResult refused = Compile(*stub, SampleRequest(2));
  EXPECT_EQ(refused.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_GT(refused.detail.retry_after_ms(), 0);
  Touch(Scratch("gate"));
  client.join();
  EXPECT_TRUE(running.status.ok()) << running.status.error_message();
  EXPECT_TRUE(running.done.has_value());
  EXPECT_EQ(server.Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/s.sock"));
}

TEST_F(ServerProtocolTest, DrainGivesUpAtItsLimitWithADelay) {
  ServerUnderTest& server = Start({"--drain-seconds=0.1"});
  auto stub = server.stub();
  StreamResult running;
  std::thread client([&] {
    v1::CompileRequest request = SampleRequest(1, "hang");
    (*request.mutable_code_options()->mutable_backend_options())["fake.journal"] = Scratch("journal");
    running = Compile(*stub, request);
  });
  AwaitFile(Scratch("journal"), 1);
  server.Signal(SIGTERM);
  client.join();
  EXPECT_EQ(running.status.error_code(), grpc::UNAVAILABLE);
  EXPECT_GT(running.detail.retry_after_ms(), 0);
  EXPECT_EQ(server.Wait(), 0);
}

TEST_F(ServerProtocolTest, ASecondSignalEndsAtOnce) {
  ServerUnderTest& server = Start({"--drain-seconds=3600"});
  auto stub = server.stub();
  std::thread client([&] {
    v1::CompileRequest request = SampleRequest(1, "hang");
    (*request.mutable_code_options()->mutable_backend_options())["fake.journal"] = Scratch("journal");
    EXPECT_FALSE(Compile(*stub, request).status.ok());
  });
  AwaitFile(Scratch("journal"), 1);
  server.Signal(SIGTERM);
  while (Health(server.tcp(), "") == 1) absl::SleepFor(absl::Milliseconds(3));
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 128 + SIGTERM);
  client.join();
}

TEST_F(ServerProtocolTest, AnIdleServerEndsByItself) {
  ServerUnderTest& server = Start({"--idle-exit-seconds=0.1"});
  EXPECT_EQ(server.Wait(), 0);
}

TEST_F(ServerProtocolTest, ASecondServerOnTheSameStateEndsWithThree) {
  Start();
  ServerUnderTest second(STEPONE_SERVER, STEPONE_FAKE_WORKER, folder_);
  EXPECT_EQ(second.Wait(), 3);
  EXPECT_TRUE(server_->running());
}

}  // namespace
}  // namespace stepone
