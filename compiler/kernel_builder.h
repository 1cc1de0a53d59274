// From lowered kernels to native objects: source text, keys, the kernel cache, and building what it does not hold.
#ifndef STEPONE_COMPILER_KERNEL_BUILDER_H_
#define STEPONE_COMPILER_KERNEL_BUILDER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/cpu_codegen.h"
#include "compiler/compile.h"
#include "compiler/loops/program.h"
#include "stepone/v1/target.pb.h"

namespace stepone::compiler {

// One distinct kernel of a program.
struct BuiltKernel {
  codegen::CpuSource source;
  std::string key;      // 32 raw bytes: names the kernel for this target and toolchain
  std::string object;   // a shared library
  bool reused = false;  // came from the cache
  double codegen_ms = 0;
  double compile_ms = 0;
  double link_ms = 0;
};

// The kernels of a program, each distinct one once.
struct BuiltKernels {
  std::vector<BuiltKernel> kernels;
  std::vector<int32_t> kernel_of_step;  // per step of the program: index into `kernels`, or -1 if it is no launch
};

// Generates and builds all kernels of `program` on up to `threads` threads. The result does not depend on `threads` or
// on what the cache holds. kCancelled when the observer says so; errors of codegen and build otherwise.
absl::StatusOr<BuiltKernels> BuildKernels(const loops::Program& program, const v1::Target& target, int threads,
                                          KernelCache& cache, CompileObserver& observer);

}  // namespace stepone::compiler

#endif  // STEPONE_COMPILER_KERNEL_BUILDER_H_
