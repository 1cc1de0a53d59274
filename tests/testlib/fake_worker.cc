// A compiler that does what the request's backend options say, under the real worker loop (stepone-fake-worker).
//
//   fake.behaviour   what to do (see Act()); "ok" when missing
//   fake.path        a file that the behaviour watches or leaves
//   fake.kernels     how many kernels the artifact has (default 2)
//   fake.bytes       size of each kernel's object (default 100)
//   fake.journal     file to which a line is added when a compile begins
//
// STEPONE_FAKE_HELLO: "exit" ends the process before it speaks; STEPONE_FAKE_FINGERPRINT replaces the fingerprint.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "compiler/compile.h"
#include "proto/digest.h"

namespace stepone::compiler {
namespace {

std::string Option(const v1::CodeOptions& options, const std::string& name, const std::string& missing = "") {
  const auto found = options.backend_options().find(name);
  return found == options.backend_options().end() ? missing : found->second;
}

int IntOption(const v1::CodeOptions& options, const std::string& name, int missing) {
  int value = missing;
  return absl::SimpleAtoi(Option(options, name), &value) ? value : missing;
}

// True the first time, by leaving `path` behind.
bool FirstTime(const std::string& path) {
  if (std::filesystem::exists(path)) return false;
  std::ofstream(path).put('x');
  return true;
}

volatile int* volatile nowhere = nullptr;
std::vector<std::unique_ptr<char[]>> hoard;

// Recursion that the optimiser can't turn into a loop.
int Overflow(int depth) {
  volatile char block[4096];
  block[0] = static_cast<char>(depth);
  if (depth < 0) return block[0];
  return Overflow(depth + 1) + block[0];
}

absl::Status Act(const CompileInput& input, CompileObserver& observer) {
  const std::string behaviour = Option(input.options, "fake.behaviour", "ok");
  const std::string path = Option(input.options, "fake.path");
  if (behaviour == "gate") {  // until `path` is there, or nobody wants the result
    while (!std::filesystem::exists(path)) {
      if (observer.Cancelled()) return absl::CancelledError("cancelled");
      absl::SleepFor(absl::Milliseconds(2));
    }
  } else if (behaviour == "deaf_gate") {  // the same, ignoring cancellation
    while (!std::filesystem::exists(path)) absl::SleepFor(absl::Milliseconds(2));
  } else if (behaviour == "hang" || (behaviour == "hang_once" && FirstTime(path))) {
    while (true) pause();
  } else if (behaviour == "spin") {
    for (volatile int i = 0;;) {
      const int next = i + 1;
      i = next;
    }
  } else if (behaviour == "crash" || (behaviour == "crash_once" && FirstTime(path))) {
    *nowhere = 1;
  } else if (behaviour == "overflow") {
    Overflow(0);
  } else if (behaviour == "killed" || (behaviour == "killed_once" && FirstTime(path))) {
    kill(getpid(), SIGKILL);
  } else if (behaviour == "exit") {
    _exit(0);
  } else if (behaviour == "garbage") {
    const std::string bytes(1000, '\xff');
    [[maybe_unused]] const ssize_t n = write(3, bytes.data(), bytes.size());
    while (true) pause();
  } else if (behaviour == "memory" || (behaviour == "memory_once" && FirstTime(path))) {
    while (true) hoard.push_back(std::make_unique_for_overwrite<char[]>(64u << 20));
  } else if (behaviour == "invalid") {
    return absl::InvalidArgumentError("the graph is wrong, says the fake");
  } else if (behaviour == "unimplemented") {
    return absl::UnimplementedError("the fake can't do that");
  } else if (behaviour == "internal") {
    return absl::InternalError("the fake is broken");
  } else if (behaviour == "exhausted") {
    return absl::ResourceExhaustedError("no space left on device");
  }
  return absl::OkStatus();
}

std::string KernelBytes(const CompileInput& input, int index) {
  const size_t size = static_cast<size_t>(IntOption(input.options, "fake.bytes", 100));
  std::string bytes = absl::StrCat("kernel ", index, " of ", input.graph->SerializeAsString());
  bytes.resize(size, '.');
  return bytes;
}

}  // namespace

absl::StatusOr<CompileResult> Compile(const CompileInput& input, KernelCache& kernels, CompileObserver& observer) {
  if (const std::string journal = Option(input.options, "fake.journal"); !journal.empty()) {
    std::ofstream(journal, std::ios::app) << "begin " << input.graph->role() << std::endl;
  }
  observer.OnStage("import", 0, 0);
  if (absl::Status status = Act(input, observer); !status.ok()) return status;

  const int count = IntOption(input.options, "fake.kernels", 2);
  observer.OnStage("build", 0, count);
  std::vector<std::string> keys;
  for (int i = 0; i < count; ++i) keys.push_back(Sha256("key of " + KernelBytes(input, i)).Raw());
  const std::vector<std::string> held = kernels.Lookup(keys);

  CompileResult result;
  v1::Manifest& manifest = result.manifest;
  manifest.set_format_version(1);
  manifest.set_compiler_fingerprint(Fingerprint());
  manifest.set_role(input.graph->role());
  *manifest.mutable_target() = input.target;
  *manifest.mutable_code_options() = input.options;
  for (int i = 0; i < count; ++i) {
    const size_t at = static_cast<size_t>(i);
    const std::string bytes = held[at].empty() ? KernelBytes(input, i) : held[at];
    const std::string digest = Sha256(bytes).Raw();
    v1::ObjectRef& reference = *manifest.add_objects();
    reference.set_digest(digest);
    reference.set_size_bytes(bytes.size());
    reference.set_format("elf-so");
    v1::Kernel& kernel = *manifest.add_kernels();
    kernel.set_object(static_cast<uint32_t>(i));
    kernel.set_name(absl::StrCat("fake_", i));
    kernel.set_kernel_key(keys[at]);
    v1::KernelRecord& record = *manifest.mutable_report()->add_kernels();
    record.set_name(kernel.name());
    record.set_reused(!held[at].empty());
    v1::ObjectBytes& object = result.objects.emplace_back();
    object.set_digest(digest);
    object.set_data(bytes);
    if (held[at].empty()) {
      v1::CompiledKernel& compiled = result.new_kernels.emplace_back();
      compiled.set_kernel_key(keys[at]);
      compiled.set_object(bytes);
    }
    observer.OnStage("build", i + 1, count);
  }
  return result;
}

std::string Fingerprint() {
  const char* hello = std::getenv("STEPONE_FAKE_HELLO");
  if (hello != nullptr && std::string(hello) == "exit") {
    std::fprintf(stderr, "the fake refuses to start\n");
    _exit(5);
  }
  const char* fingerprint = std::getenv("STEPONE_FAKE_FINGERPRINT");
  return fingerprint != nullptr ? fingerprint : "fake 1";
}

std::vector<v1::Target> HostTargets() {
  v1::Target target;
  target.set_device_type("cpu");
  target.set_isa("x86-64-v3");
  target.set_vector_bytes(32);
  return {target};
}

}  // namespace stepone::compiler
