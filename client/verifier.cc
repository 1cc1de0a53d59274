#include "client/verifier.h"

#include <utility>

#include "absl/container/flat_hash_map.h"
#include "client/object_loader.h"
#include "client/plan_from_manifest.h"
#include "proto/host_target.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

constexpr uint32_t kFormatVersion = 1;                    // of Manifest
constexpr uint64_t kMaxObjectBytes = uint64_t{64} << 20;  // a kernel is a few kilobytes
constexpr std::string_view kElfFormat = "elf-so";

absl::Status CheckVersions(const v1::Manifest& manifest) {
  if (manifest.format_version() != kFormatVersion) {
    return absl::FailedPreconditionError(
        StrCat("artifact has format ", manifest.format_version(), ", this client reads ", kFormatVersion));
  }
  if (manifest.kernel_abi_version() != STEPONE_KERNEL_ABI_VERSION) {
    return absl::FailedPreconditionError(StrCat("artifact has kernel ABI ", manifest.kernel_abi_version(),
                                                ", this client has ", STEPONE_KERNEL_ABI_VERSION));
  }
  return absl::OkStatus();
}

absl::Status CheckAnswers(const v1::Manifest& manifest, const ExpectedArtifact& expected) {
  if (manifest.role() != expected.role) return absl::DataLossError("artifact is for another role than was asked for");
  if (manifest.inputs_size() != expected.inputs || manifest.outputs_size() != expected.outputs) {
    return absl::DataLossError(StrCat("artifact has ", manifest.inputs_size(), " inputs and ", manifest.outputs_size(),
                                      " outputs, the graph has ", expected.inputs, " and ", expected.outputs));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Digest>> CheckObjects(const v1::Manifest& manifest) {
  std::vector<Digest> digests;
  for (const v1::ObjectRef& object : manifest.objects()) {
    const std::optional<Digest> digest = Digest::FromRaw(object.digest());
    if (!digest) return absl::DataLossError(StrCat("object ", digests.size(), " has no digest"));
    if (object.format() != kElfFormat) {
      return absl::FailedPreconditionError(
          StrCat("object ", digests.size(), " has the unknown format \"", object.format(), "\""));
    }
    if (object.size_bytes() == 0 || object.size_bytes() > kMaxObjectBytes) {
      return absl::DataLossError(StrCat("object ", digests.size(), " has ", object.size_bytes(), " bytes"));
    }
    digests.push_back(*digest);
  }
  for (int i = 0; i < manifest.kernels_size(); ++i) {
    const v1::Kernel& kernel = manifest.kernels(i);
    if (kernel.object() >= digests.size()) return absl::DataLossError(StrCat("kernel ", i, " is in no object"));
    if (kernel.symbol().empty()) return absl::DataLossError(StrCat("kernel ", i, " has no symbol"));
  }
  return digests;
}

}  // namespace

absl::StatusOr<VerifiedManifest> VerifyManifest(const v1::SignedManifest& signed_manifest, const TrustedKeys& keys,
                                                const v1::Target& host, const ExpectedArtifact& expected) {
  if (absl::Status status = keys.Verify(signed_manifest); !status.ok()) return status;
  VerifiedManifest verified;
  if (!verified.manifest.ParseFromString(signed_manifest.manifest())) {
    return absl::DataLossError("artifact's manifest does not parse");
  }
  verified.graph_key = signed_manifest.graph_key();
  if (absl::Status status = CheckVersions(verified.manifest); !status.ok()) return status;
  if (absl::Status status = CheckAnswers(verified.manifest, expected); !status.ok()) return status;
  if (absl::Status status = CheckRunsOn(verified.manifest.target(), host); !status.ok()) return status;
  absl::StatusOr<std::vector<Digest>> objects = CheckObjects(verified.manifest);
  if (!objects.ok()) return objects.status();
  verified.objects = *std::move(objects);
  absl::StatusOr<Plan> plan = PlanFromManifest(verified.manifest);
  if (!plan.ok()) return plan.status();
  verified.plan = *std::move(plan);
  return verified;
}

absl::StatusOr<KernelSet> MapKernels(const VerifiedManifest& verified, const std::vector<v1::ObjectBytes>& objects) {
  absl::flat_hash_map<Digest, const std::string*> bytes;
  for (const v1::ObjectBytes& object : objects) {
    if (const std::optional<Digest> digest = Digest::FromRaw(object.digest())) bytes[*digest] = &object.data();
  }
  KernelSet set;
  std::vector<std::shared_ptr<MappedObject>> mapped;
  for (size_t i = 0; i < verified.objects.size(); ++i) {
    const Digest& digest = verified.objects[i];
    std::shared_ptr<MappedObject> object = ObjectLoader::Global().Find(digest);
    if (object == nullptr) {
      const auto found = bytes.find(digest);
      if (found == bytes.end()) return absl::DataLossError(StrCat("object ", digest.Hex(), " is missing"));
      if (found->second->size() != verified.manifest.objects(static_cast<int>(i)).size_bytes()) {
        return absl::DataLossError(StrCat("object ", digest.Hex(), " has a wrong size"));
      }
      absl::StatusOr<std::shared_ptr<MappedObject>> loaded = ObjectLoader::Global().Load(digest, *found->second);
      if (!loaded.ok()) return loaded.status();
      object = *std::move(loaded);
    }
    set.owners.push_back(object);
    mapped.push_back(std::move(object));
  }
  for (const v1::Kernel& kernel : verified.manifest.kernels()) {
    absl::StatusOr<void*> symbol = mapped[kernel.object()]->Symbol(kernel.symbol());
    if (!symbol.ok()) return symbol.status();
    set.functions.push_back(reinterpret_cast<stepone_kernel_fn>(*symbol));
  }
  return set;
}

}  // namespace stepone::client
