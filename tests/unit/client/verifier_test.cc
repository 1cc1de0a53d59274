// Signed artifacts: good ones are mapped, all others are refused for the stated reason.
#include "client/verifier.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/object_loader.h"
#include "proto/host_target.h"
#include "test_kernels.h"

namespace stepone::client {
namespace {

using ::testing::HasSubstr;

const SigningKey& ServerKey() {
  static const SigningKey& key = *new SigningKey(SigningKey::Generate());
  return key;
}

// One kernel that doubles its input.
v1::Manifest GoodManifest() {
  v1::Manifest manifest;
  manifest.set_format_version(1);
  manifest.set_kernel_abi_version(STEPONE_KERNEL_ABI_VERSION);
  *manifest.mutable_target() = HostTarget();
  manifest.set_role(v1::ROLE_FORWARD);
  v1::ObjectRef* object = manifest.add_objects();
  object->set_digest(Sha256(TestKernelObject()).Raw());
  object->set_size_bytes(TestKernelObject().size());
  object->set_format("elf-so");
  v1::Kernel* kernel = manifest.add_kernels();
  kernel->set_symbol("double_f32");
  kernel->set_name("double");
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
  return manifest;
}

v1::SignedManifest Signed(const v1::Manifest& manifest, const SigningKey& key = ServerKey()) {
  v1::SignedManifest signed_manifest;
  signed_manifest.set_manifest(manifest.SerializeAsString());
  signed_manifest.set_graph_key("key");
  key.Sign(signed_manifest);
  return signed_manifest;
}

absl::StatusOr<VerifiedManifest> Verify(const v1::SignedManifest& manifest, const v1::Target& host = HostTarget()) {
  TrustedKeys keys;
  EXPECT_TRUE(keys.Add(ServerKey().public_key()).ok());
  return VerifyManifest(manifest, keys, host, ExpectedArtifact{v1::ROLE_FORWARD, 1, 1});
}

std::vector<v1::ObjectBytes> GoodObjects() {
  v1::ObjectBytes object;
  object.set_digest(Sha256(TestKernelObject()).Raw());
  object.set_data(TestKernelObject());
  return {object};
}

void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::string& message) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(message));
}

TEST(VerifierTest, MapsAGoodArtifact) {
  const auto verified = Verify(Signed(GoodManifest()));
  ASSERT_TRUE(verified.ok()) << verified.status();
  const auto kernels = MapKernels(*verified, GoodObjects());
  ASSERT_TRUE(kernels.ok()) << kernels.status();
  float in[4] = {1, 2, 3, 4}, out[4] = {};
  void* buffers[] = {in, out};
  EXPECT_EQ(kernels->functions[0](buffers, nullptr, 0, 4), STEPONE_KERNEL_OK);
  EXPECT_THAT(out, ::testing::ElementsAre(2, 4, 6, 8));
}

TEST(VerifierTest, RefusesSignaturesOfOthers) {
  const v1::Manifest manifest = GoodManifest();
  ExpectRefused(Verify(Signed(manifest, SigningKey::Generate())).status(), absl::StatusCode::kPermissionDenied,
                "not trusted");
  v1::SignedManifest unsigned_manifest = Signed(manifest);
  unsigned_manifest.clear_signatures();
  ExpectRefused(Verify(unsigned_manifest).status(), absl::StatusCode::kPermissionDenied, "not signed");
}

TEST(VerifierTest, RefusesEachFlippedBit) {
  const v1::SignedManifest good = Signed(GoodManifest());
  for (size_t at = 0; at < good.manifest().size(); ++at) {
    v1::SignedManifest bad = good;
    (*bad.mutable_manifest())[at] ^= 1 << (at % 8);
    ASSERT_EQ(Verify(bad).status().code(), absl::StatusCode::kPermissionDenied) << "byte " << at;
  }
  v1::SignedManifest moved = good;
  moved.set_graph_key("another");
  EXPECT_EQ(Verify(moved).status().code(), absl::StatusCode::kPermissionDenied);
}

struct Row {
  const char* name;
  void (*damage)(v1::Manifest&);
  absl::StatusCode code;
  const char* message;
};

class SignedButBadTest : public ::testing::TestWithParam<Row> {};

TEST_P(SignedButBadTest, IsRefusedForTheStatedReason) {
  v1::Manifest manifest = GoodManifest();
  GetParam().damage(manifest);
  ExpectRefused(Verify(Signed(manifest)).status(), GetParam().code, GetParam().message);
}

const Row kRows[] = {
    {"Format", [](v1::Manifest& m) { m.set_format_version(9); }, absl::StatusCode::kFailedPrecondition, "format 9"},
    {"Abi", [](v1::Manifest& m) { m.set_kernel_abi_version(2); }, absl::StatusCode::kFailedPrecondition, "ABI 2"},
    {"Role", [](v1::Manifest& m) { m.set_role(v1::ROLE_BACKWARD); }, absl::StatusCode::kDataLoss, "another role"},
    {"Inputs", [](v1::Manifest& m) { m.add_inputs()->set_int_value(1); }, absl::StatusCode::kDataLoss, "2 inputs"},
    {"Outputs", [](v1::Manifest& m) { m.clear_outputs(); }, absl::StatusCode::kDataLoss, "0 outputs"},
    {"Device", [](v1::Manifest& m) { m.mutable_target()->set_device_type("cuda"); },
     absl::StatusCode::kFailedPrecondition, "cuda"},
    {"Isa", [](v1::Manifest& m) { m.mutable_target()->set_isa("neoverse-v1"); }, absl::StatusCode::kFailedPrecondition,
     "neoverse-v1"},
    {"Vector", [](v1::Manifest& m) { m.mutable_target()->set_vector_bytes(256); },
     absl::StatusCode::kFailedPrecondition, "vectors of 256"},
    {"Feature", [](v1::Manifest& m) { m.mutable_target()->add_features("amx-fp64"); },
     absl::StatusCode::kFailedPrecondition, "amx-fp64"},
    {"Digest", [](v1::Manifest& m) { m.mutable_objects(0)->set_digest("short"); }, absl::StatusCode::kDataLoss,
     "no digest"},
    {"ObjectFormat", [](v1::Manifest& m) { m.mutable_objects(0)->set_format("exe"); },
     absl::StatusCode::kFailedPrecondition, "\"exe\""},
    {"ObjectSize", [](v1::Manifest& m) { m.mutable_objects(0)->set_size_bytes(uint64_t{1} << 40); },
     absl::StatusCode::kDataLoss, "bytes"},
    {"KernelObject", [](v1::Manifest& m) { m.mutable_kernels(0)->set_object(3); }, absl::StatusCode::kDataLoss,
     "in no object"},
    {"KernelSymbol", [](v1::Manifest& m) { m.mutable_kernels(0)->clear_symbol(); }, absl::StatusCode::kDataLoss,
     "no symbol"},
    {"Arena", [](v1::Manifest& m) { m.set_arena_bytes(~uint64_t{0}); }, absl::StatusCode::kDataLoss, "arena"},
    {"Storage", [](v1::Manifest& m) { m.mutable_buffers(0)->clear_storage(); }, absl::StatusCode::kDataLoss,
     "unknown storage"},
    {"Step", [](v1::Manifest& m) { m.add_steps(); }, absl::StatusCode::kUnimplemented, "step of a kind"},
    {"SymbolicSize",
     [](v1::Manifest& m) { m.add_steps()->mutable_call()->add_arguments()->mutable_int_value()->set_expr("s0"); },
     absl::StatusCode::kDataLoss, "not specialised"},
    {"ListLengths",
     [](v1::Manifest& m) {
       v1::ValueList* list = m.add_steps()->mutable_call()->add_arguments()->mutable_value_list();
       list->add_values(0);
       list->add_present(true);
       list->add_present(true);
     },
     absl::StatusCode::kDataLoss, "unequal lengths"},
    {"Output", [](v1::Manifest& m) { m.mutable_outputs(0)->set_buffer(17); }, absl::StatusCode::kDataLoss,
     "does not exist"},
};

INSTANTIATE_TEST_SUITE_P(All, SignedButBadTest, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(VerifierTest, RefusesHardwareAboveAPretendedHost) {
  const auto host = LowerTarget(HostTarget(), "x86-64-v2");
  ASSERT_TRUE(host.ok()) << host.status();
  v1::Manifest manifest = GoodManifest();
  *manifest.mutable_target() = *LowerTarget(HostTarget(), "x86-64-v3");
  ExpectRefused(Verify(Signed(manifest), *host).status(), absl::StatusCode::kFailedPrecondition, "needs x86-64-v3");
}

TEST(VerifierTest, RefusesDamagedObjects) {
  // A digest of its own: the good object may be mapped already, and then its bytes are not looked at.
  const std::string bytes = TestKernelObject() + "tail";
  v1::Manifest manifest = GoodManifest();
  manifest.mutable_objects(0)->set_digest(Sha256(bytes).Raw());
  manifest.mutable_objects(0)->set_size_bytes(bytes.size());
  const auto verified = Verify(Signed(manifest));
  ASSERT_TRUE(verified.ok()) << verified.status();
  v1::ObjectBytes object;
  object.set_digest(Sha256(bytes).Raw());
  ExpectRefused(MapKernels(*verified, {}).status(), absl::StatusCode::kDataLoss, "missing");
  object.set_data(bytes + "x");
  ExpectRefused(MapKernels(*verified, {object}).status(), absl::StatusCode::kDataLoss, "wrong size");
  object.set_data(bytes);
  (*object.mutable_data())[bytes.size() / 2] ^= 4;
  ExpectRefused(MapKernels(*verified, {object}).status(), absl::StatusCode::kDataLoss, "damaged");
  object.set_data(bytes);
  EXPECT_TRUE(MapKernels(*verified, {object}).ok());
}

TEST(VerifierTest, RefusesWhatIsNoLibraryAndSymbolsThatAreNotThere) {
  const std::string text = "not a library";
  v1::Manifest manifest = GoodManifest();
  manifest.mutable_objects(0)->set_digest(Sha256(text).Raw());
  manifest.mutable_objects(0)->set_size_bytes(text.size());
  v1::ObjectBytes object;
  object.set_digest(Sha256(text).Raw());
  object.set_data(text);
  ExpectRefused(MapKernels(*Verify(Signed(manifest)), {object}).status(), absl::StatusCode::kDataLoss,
                "can't be mapped");

  v1::Manifest other = GoodManifest();
  other.mutable_kernels(0)->set_symbol("missing");
  ExpectRefused(MapKernels(*Verify(Signed(other)), GoodObjects()).status(), absl::StatusCode::kDataLoss, "no symbol");
}

TEST(ObjectLoaderTest, MapsEachDigestOnceAndUnmapsItWithItsLastHolder) {
  const std::string bytes = TestKernelObject() + "of its own";
  const Digest digest = Sha256(bytes);
  ObjectLoader loader;
  auto first = loader.Load(digest, bytes);
  auto second = loader.Load(digest, bytes);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  EXPECT_EQ(loader.counters().mapped, 1);
  EXPECT_EQ(loader.counters().shared, 1);
  EXPECT_EQ(loader.Mapped().size(), 1u);
  *first = nullptr;
  *second = nullptr;
  EXPECT_EQ(loader.Find(digest), nullptr);
  EXPECT_TRUE(loader.Mapped().empty());
}

}  // namespace
}  // namespace stepone::client
