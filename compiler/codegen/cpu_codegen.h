// C source for the kernels of a program, for CPU targets.
#ifndef STEPONE_COMPILER_CODEGEN_CPU_CODEGEN_H_
#define STEPONE_COMPILER_CODEGEN_CPU_CODEGEN_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/loops/kernel.h"

namespace stepone::codegen {

struct CpuTarget {
  int64_t vector_bytes = 32;  // 16, 32 or 64
  int64_t l1d_bytes = 32 << 10;
  int64_t l2_bytes = 512 << 10;
};

// One kernel as freestanding C (clang's vector extensions, no #include) and how to launch it. The function has the
// signature stepone_kernel_fn of proto/kernel_abi.h.
struct CpuSource {
  std::string text;
  std::string symbol;
  int64_t units = 0;  // LaunchStep.units
  int64_t grain = 1;  // LaunchStep.grain: units that make some 20 us of work
};

// kInternal when the kernel does not pass loops::Verify, kUnimplemented for a dtype or op that has no code.
absl::StatusOr<CpuSource> GenerateCpu(const loops::Kernel& kernel, const CpuTarget& target);

}  // namespace stepone::codegen

#endif  // STEPONE_COMPILER_CODEGEN_CPU_CODEGEN_H_
