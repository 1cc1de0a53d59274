// C source to a shared library, in process: clang and lld as libraries.
#ifndef STEPONE_COMPILER_BUILD_BUILD_CPU_H_
#define STEPONE_COMPILER_BUILD_BUILD_CPU_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stepone::build {

struct BuildTimings {
  double compile_ms = 0;
  double link_ms = 0;
};

// Thread-safe: several threads may build at once (linking is serialised inside).
class CpuBuilder {
 public:
  // `isa`: "x86-64-v3", "x86-64-v4", "znver4", "neoverse-v1" ...; also one that this host lacks.
  // kUnimplemented when clang does not know it.
  static absl::StatusOr<std::unique_ptr<CpuBuilder>> Create(std::string_view isa);
  virtual ~CpuBuilder() = default;

  // Compiles freestanding C and links it into a shared library without dependencies or undefined symbols that exports
  // `symbol` only. Same text, same bytes. kInternal carries clang's or lld's messages.
  virtual absl::StatusOr<std::string> Build(std::string_view source, std::string_view symbol,
                                            BuildTimings* timings) = 0;

  // Builds something small, so that the first real build does not pay for loading the toolchain. Takes some 30 ms.
  virtual absl::Status WarmUp() = 0;
};

// Versions of clang and lld and the flags in use: part of the compiler's fingerprint.
std::string ToolchainFingerprint();

}  // namespace stepone::build

#endif  // STEPONE_COMPILER_BUILD_BUILD_CPU_H_
