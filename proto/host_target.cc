#include "proto/host_target.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "proto/str_cat.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stepone {
namespace {

constexpr uint32_t kDefaultL1dBytes = 32 << 10;
constexpr uint32_t kDefaultL2Bytes = 512 << 10;

// "512K" or "1M" as the kernel writes it; 0 when it is neither.
uint32_t ParseCacheSize(std::string text) {
  uint32_t unit = 1;
  if (!text.empty() && text.back() == 'K') unit = 1 << 10;
  if (!text.empty() && text.back() == 'M') unit = 1 << 20;
  if (unit != 1) text.pop_back();
  uint32_t number = 0;
  return absl::SimpleAtoi(text, &number) ? number * unit : 0;
}

std::string ReadWord(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Size of the data (or unified) cache of `level` of the first CPU, rounded down to a power of two.
uint32_t CacheBytes(int level, uint32_t fallback) {
  for (int index = 0; index < 8; ++index) {
    const std::string dir = StrCat("/sys/devices/system/cpu/cpu0/cache/index", index);
    if (ReadWord(dir + "/level") != std::to_string(level)) continue;
    if (ReadWord(dir + "/type") == "Instruction") continue;
    const uint32_t bytes = ParseCacheSize(ReadWord(dir + "/size"));
    if (bytes > 0) return std::bit_floor(bytes);
  }
  return fallback;
}

#if defined(__x86_64__)

// Features beyond a level that generated code may use, in sorted order. The compiler's names (LLVM's).
void AddFeatures(v1::Target& target) {
  if (target.isa() != "x86-64-v4") return;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool leaf1 = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0;
  if (leaf1 && (eax & (1u << 5)) != 0) target.add_features("avx512bf16");
  const bool leaf0 = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0;
  if (leaf0 && (edx & (1u << 23)) != 0) target.add_features("avx512fp16");
  if (leaf0 && (ecx & (1u << 11)) != 0) target.add_features("avx512vnni");
}

v1::Target Detect() {
  v1::Target target;
  target.set_device_type("cpu");
  __builtin_cpu_init();
  // The builtin also asks whether the operating system saves the wide registers.
  if (__builtin_cpu_supports("x86-64-v4")) {
    target.set_isa("x86-64-v4");
    target.set_vector_bytes(64);
  } else if (__builtin_cpu_supports("x86-64-v3")) {
    target.set_isa("x86-64-v3");
    target.set_vector_bytes(32);
  } else {
    target.set_isa("x86-64-v2");
    target.set_vector_bytes(16);
  }
  AddFeatures(target);
  return target;
}

#else

v1::Target Detect() {
  v1::Target target;
  target.set_device_type("cpu");
  target.set_isa("armv8-a");
  target.set_vector_bytes(16);
  return target;
}

#endif

// Position in the chain of levels of which each contains those before it; 0 for a name outside of it.
int X86Level(std::string_view isa) {
  if (isa == "x86-64-v2") return 2;
  if (isa == "x86-64-v3") return 3;
  if (isa == "x86-64-v4") return 4;
  return 0;
}

uint32_t VectorBytesOfLevel(int level) { return level == 4 ? 64 : level == 3 ? 32 : 16; }

}  // namespace

const v1::Target& HostTarget() {
  static const v1::Target& target = *new v1::Target([] {
    v1::Target detected = Detect();
    detected.set_l1d_bytes(CacheBytes(1, kDefaultL1dBytes));
    detected.set_l2_bytes(CacheBytes(2, kDefaultL2Bytes));
    return detected;
  }());
  return target;
}

absl::StatusOr<v1::Target> LowerTarget(const v1::Target& host, std::string_view isa) {
  if (isa == host.isa()) return host;
  const int level = X86Level(isa);
  if (level == 0) return absl::InvalidArgumentError(StrCat("unknown instruction set \"", isa, "\""));
  if (level > X86Level(host.isa())) {
    return absl::InvalidArgumentError(StrCat("this host is ", host.isa(), " and can't run ", isa));
  }
  v1::Target lowered = host;
  lowered.set_isa(std::string(isa));
  lowered.clear_features();
  lowered.set_vector_bytes(VectorBytesOfLevel(level));
  return lowered;
}

absl::Status CheckRunsOn(const v1::Target& target, const v1::Target& host) {
  if (target.device_type() != host.device_type()) {
    return absl::FailedPreconditionError(
        StrCat("artifact is for a ", target.device_type(), " device, host has ", host.device_type()));
  }
  const int level = X86Level(target.isa());
  const bool level_fits = level != 0 ? level <= X86Level(host.isa()) : target.isa() == host.isa();
  if (!level_fits) {
    return absl::FailedPreconditionError(StrCat("artifact needs ", target.isa(), ", host is ", host.isa()));
  }
  if (target.vector_bytes() > host.vector_bytes()) {
    return absl::FailedPreconditionError(
        StrCat("artifact needs vectors of ", target.vector_bytes(), " bytes, host has ", host.vector_bytes()));
  }
  for (const std::string& feature : target.features()) {
    if (std::find(host.features().begin(), host.features().end(), feature) == host.features().end()) {
      return absl::FailedPreconditionError(StrCat("artifact needs ", feature, ", which the host lacks"));
    }
  }
  return absl::OkStatus();
}

}  // namespace stepone
