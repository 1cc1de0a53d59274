// Compiles kernels and runs them in this process, in memory that faults right behind (or before) each buffer.
#ifndef STEPONE_TESTS_UNIT_CODEGEN_KERNEL_RUNNER_H_
#define STEPONE_TESTS_UNIT_CODEGEN_KERNEL_RUNNER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/cpu_codegen.h"
#include "compiler/loops/kernel.h"
#include "proto/kernel_abi.h"

namespace stepone::codegen {

// A loaded kernel. Not thread-safe.
class LoadedKernel {
 public:
  static absl::StatusOr<std::unique_ptr<LoadedKernel>> Load(const loops::Kernel& kernel, const CpuTarget& target = {});
  ~LoadedKernel();

  // Runs all units in ranges of `step`, from the last range to the first if `backwards`. `buffers` are replaced by what
  // they hold afterwards. Returns the first status that is not 0.
  int32_t Run(std::vector<std::string>& buffers, int64_t step = 1 << 30, bool backwards = false) const;

  const CpuSource& source() const { return source_; }
  stepone_kernel_fn function() const { return function_; }

 private:
  CpuSource source_;
  int file_ = -1;  // stays open: dlopen takes an equal path for the same library
  void* handle_ = nullptr;
  stepone_kernel_fn function_ = nullptr;
};

// Runs `kernel` with 4, 8 and 16 lanes and in several splits, and holds the result against the interpreter. Float
// elements may differ by `tolerance` relative to the larger of their size and `scale`; everything else is equal, and
// the splits are equal bit for bit.
struct Tolerance {
  double relative = 2e-6;
  double scale = 1e-3;
};
void ExpectLikeInterpreter(const loops::Kernel& kernel, const std::vector<std::string>& buffers,
                           const Tolerance& tolerance = {});

// Random elements: floats around 0, integers between -9 and 9 (or 0 and 9), truth values.
std::string RandomElements(ir::DType type, int64_t count, uint32_t seed);
template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}
template <typename T>
std::vector<T> Values(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.begin() + values.size() * sizeof(T), reinterpret_cast<char*>(values.data()));
  return values;
}
// Element i of a buffer as a double.
double ElementAt(const std::string& bytes, ir::DType type, int64_t i);

}  // namespace stepone::codegen

#endif  // STEPONE_TESTS_UNIT_CODEGEN_KERNEL_RUNNER_H_
