// A compile service in the test's own process, with a script for each call.
#ifndef STEPONE_TESTS_UNIT_CLIENT_FAKE_SERVICE_H_
#define STEPONE_TESTS_UNIT_CLIENT_FAKE_SERVICE_H_

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "client/client_config.h"
#include "client/compile_client.h"
#include "proto/digest.h"
#include "proto/host_target.h"
#include "proto/kernel_abi.h"
#include "proto/signing.h"
#include "stepone/v1/compile_service.grpc.pb.h"
#include "test_kernels.h"

namespace stepone::client {

using EventWriter = grpc::ServerWriter<v1::CompileEvent>;

// Answers with what the test put into the hooks. The hooks run on gRPC's threads.
class FakeService final : public v1::CompileService::Service {
 public:
  std::function<grpc::Status(grpc::ServerContext&, const v1::CompileRequest&, EventWriter&)> on_compile;
  std::function<grpc::Status(grpc::ServerContext&, const v1::AttachRequest&, EventWriter&)> on_attach;
  std::function<grpc::Status(const v1::FetchRequest&, grpc::ServerWriter<v1::FetchChunk>&)> on_fetch;
  std::function<grpc::Status(const v1::CompileRequest&, v1::FindResponse&)> on_find;
  std::function<grpc::Status(grpc::ServerContext&, const v1::TraceRequest&, v1::FindBundleResponse&)> on_find_bundle;
  std::function<grpc::Status(grpc::ServerContext&, const v1::PutBundleRequest&)> on_put_bundle;

  SigningKey key = SigningKey::Generate();

  int compiles() const { return Count(compiles_); }
  int attaches() const { return Count(attaches_); }
  int cancels() const { return Count(cancels_); }

  grpc::Status GetCapabilities(grpc::ServerContext*, const v1::GetCapabilitiesRequest*,
                               v1::GetCapabilitiesResponse* response) override {
    response->set_public_key(key.public_key());
    return grpc::Status::OK;
  }
  grpc::Status Find(grpc::ServerContext*, const v1::CompileRequest* request, v1::FindResponse* response) override {
    return on_find(*request, *response);
  }
  grpc::Status FindBundle(grpc::ServerContext* context, const v1::TraceRequest* request,
                          v1::FindBundleResponse* response) override {
    return on_find_bundle(*context, *request, *response);
  }
  grpc::Status PutBundle(grpc::ServerContext* context, const v1::PutBundleRequest* request,
                         v1::PutBundleResponse*) override {
    return on_put_bundle(*context, *request);
  }
  grpc::Status Compile(grpc::ServerContext* context, const v1::CompileRequest* request, EventWriter* writer) override {
    Add(compiles_);
    return on_compile(*context, *request, *writer);
  }
  grpc::Status Attach(grpc::ServerContext* context, const v1::AttachRequest* request, EventWriter* writer) override {
    Add(attaches_);
    return on_attach(*context, *request, *writer);
  }
  grpc::Status Fetch(grpc::ServerContext*, const v1::FetchRequest* request,
                     grpc::ServerWriter<v1::FetchChunk>* writer) override {
    return on_fetch(*request, *writer);
  }
  grpc::Status Cancel(grpc::ServerContext*, const v1::CancelRequest*, v1::CancelResponse* response) override {
    Add(cancels_);
    response->set_cancelled(true);
    return grpc::Status::OK;
  }

  // An artifact of one kernel that doubles four floats, signed by `signer`. `salt` makes its object differ from others.
  v1::Artifact MakeArtifact(const SigningKey& signer, const std::string& salt = "", bool with_object = true,
                            v1::Role role = v1::ROLE_FORWARD) const {
    const std::string bytes = TestKernelObject() + salt;
    v1::Manifest manifest;
    manifest.set_format_version(1);
    manifest.set_kernel_abi_version(STEPONE_KERNEL_ABI_VERSION);
    *manifest.mutable_target() = HostTarget();
    manifest.set_role(role);
    v1::ObjectRef* object = manifest.add_objects();
    object->set_digest(Sha256(bytes).Raw());
    object->set_size_bytes(bytes.size());
    object->set_format("elf-so");
    v1::Kernel* kernel = manifest.add_kernels();
    kernel->set_symbol("double_f32");
    for (v1::Storage storage : {v1::STORAGE_INPUT, v1::STORAGE_OUTPUT}) {
      v1::Buffer* buffer = manifest.add_buffers();
      buffer->set_dtype(v1::DTYPE_FLOAT32);
      buffer->add_sizes(4);
      buffer->add_strides(1);
      buffer->set_storage(storage);
    }
    manifest.add_inputs()->set_buffer(0);
    manifest.add_outputs()->set_buffer(1);
    v1::LaunchStep* launch = manifest.add_steps()->mutable_launch();
    launch->add_buffers(0);
    launch->add_buffers(1);
    launch->set_units(4);
    launch->set_grain(4);
    v1::Artifact artifact;
    artifact.mutable_signed_manifest()->set_manifest(manifest.SerializeAsString());
    artifact.mutable_signed_manifest()->set_graph_key(std::string(32, 'k'));
    signer.Sign(*artifact.mutable_signed_manifest());
    if (with_object) {
      v1::ObjectBytes* inline_object = artifact.add_objects();
      inline_object->set_digest(Sha256(bytes).Raw());
      inline_object->set_data(bytes);
    }
    return artifact;
  }

  static void Accept(EventWriter& writer, const std::string& operation) {
    v1::CompileEvent event;
    event.set_operation(operation);
    event.mutable_accepted()->set_graph_key(std::string(32, 'k'));
    writer.Write(event);
  }
  static void Done(EventWriter& writer, v1::Artifact artifact, v1::Source source = v1::SOURCE_COMPILED) {
    v1::CompileEvent event;
    *event.mutable_done()->mutable_artifact() = std::move(artifact);
    event.mutable_done()->set_source(source);
    event.mutable_done()->set_compile_ms(5);
    writer.Write(event);
  }

 private:
  void Add(int& counter) {
    absl::MutexLock lock(&mutex_);
    ++counter;
  }
  int Count(const int& counter) const {
    absl::MutexLock lock(&mutex_);
    return counter;
  }

  mutable absl::Mutex mutex_;
  int compiles_ = 0, attaches_ = 0, cancels_ = 0;
};

// A test with such a service on a socket of its own, whose key a client learns by asking.
class FakeServiceTest : public ::testing::Test {
 protected:
  FakeServiceTest() {
    char name[] = "/tmp/stepone-client-XXXXXX";
    folder_ = mkdtemp(name);  // mode 0700: the socket in it is trusted
    Start();
    config_.endpoint = address();
    config_.home = folder_;
  }
  ~FakeServiceTest() override {
    client_.reset();
    if (server_ != nullptr) Stop();
    std::filesystem::remove_all(folder_);
  }

  std::string address() const { return "unix:" + folder_ + "/s"; }
  // Unlike all other tests' objects, so that none is mapped already.
  static std::string salt() { return ::testing::UnitTest::GetInstance()->current_test_info()->name(); }

  void Start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address(), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }
  void Stop() {
    server_->Shutdown(std::chrono::system_clock::now());
    server_->Wait();
    server_ = nullptr;
  }

  static constexpr absl::Duration kLong = absl::Seconds(60);  // a bound on hanging, not a measurement

  std::string folder_;
  FakeService service_;
  std::unique_ptr<grpc::Server> server_;
  ClientConfig config_;
  std::unique_ptr<CompileClient> client_;
};

}  // namespace stepone::client

#endif  // STEPONE_TESTS_UNIT_CLIENT_FAKE_SERVICE_H_
