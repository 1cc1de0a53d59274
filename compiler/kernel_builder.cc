#include "compiler/kernel_builder.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "compiler/build/build_cpu.h"
#include "proto/digest.h"
#include "proto/kernel_abi.h"
#include "proto/str_cat.h"

namespace stepone::compiler {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

codegen::CpuTarget CodegenTarget(const v1::Target& target) {
  codegen::CpuTarget result;
  if (target.vector_bytes() > 0) result.vector_bytes = target.vector_bytes();
  if (target.l1d_bytes() > 0) result.l1d_bytes = target.l1d_bytes();
  if (target.l2_bytes() > 0) result.l2_bytes = target.l2_bytes();
  return result;
}

// The text decides the object, together with what compiles it; each part is preceded by its length.
std::string KernelKey(const codegen::CpuSource& source, const v1::Target& target) {
  Hasher hasher;
  for (const std::string& part : {std::string("stepone-kernel-1"), StrCat(STEPONE_KERNEL_ABI_VERSION), target.isa(),
                                  build::ToolchainFingerprint(), source.symbol, source.text}) {
    hasher.Update(StrCat(part.size(), ":"));
    hasher.Update(part);
  }
  return hasher.Finish().Raw();
}

// Builders are made once per instruction set and live as long as the process.
absl::StatusOr<build::CpuBuilder*> BuilderFor(const std::string& isa) {
  static absl::Mutex mutex;
  static auto* builders = new std::unordered_map<std::string, std::unique_ptr<build::CpuBuilder>>();
  absl::MutexLock lock(&mutex);
  std::unique_ptr<build::CpuBuilder>& builder = (*builders)[isa];
  if (builder == nullptr) {
    absl::StatusOr<std::unique_ptr<build::CpuBuilder>> created = build::CpuBuilder::Create(isa);
    if (!created.ok()) return created.status();
    builder = *std::move(created);
  }
  return builder.get();
}

absl::StatusOr<BuiltKernels> GenerateAll(const loops::Program& program, const v1::Target& target) {
  const codegen::CpuTarget cpu = CodegenTarget(target);
  BuiltKernels result;
  std::unordered_map<std::string, int32_t> by_key;
  for (const loops::Step& step : program.steps) {
    const auto* launch = std::get_if<loops::Launch>(&step);
    if (launch == nullptr) {
      result.kernel_of_step.push_back(-1);
      continue;
    }
    const Clock::time_point start = Clock::now();
    absl::StatusOr<codegen::CpuSource> source = codegen::GenerateCpu(launch->kernel, cpu);
    if (!source.ok()) {
      return absl::Status(source.status().code(),
                          StrCat("codegen of kernel ", launch->kernel.name, ": ", source.status().message()));
    }
    BuiltKernel kernel;
    kernel.source = *std::move(source);
    kernel.key = KernelKey(kernel.source, target);
    kernel.codegen_ms = MillisecondsSince(start);
    const auto [entry, is_new] = by_key.try_emplace(kernel.key, static_cast<int32_t>(result.kernels.size()));
    if (is_new) result.kernels.push_back(std::move(kernel));
    result.kernel_of_step.push_back(entry->second);
  }
  return result;
}

void TakeFromCache(BuiltKernels& built, KernelCache& cache) {
  std::vector<std::string> keys;
  keys.reserve(built.kernels.size());
  for (const BuiltKernel& kernel : built.kernels) keys.push_back(kernel.key);
  if (keys.empty()) return;
  std::vector<std::string> objects = cache.Lookup(keys);
  for (size_t i = 0; i < std::min(objects.size(), keys.size()); ++i) {
    built.kernels[i].reused = !objects[i].empty();
    built.kernels[i].object = std::move(objects[i]);
  }
}

// Builds the kernels that have no object yet. Threads take the next one until none is left or something failed.
class ParallelBuild {
 public:
  ParallelBuild(BuiltKernels& built, build::CpuBuilder& builder, CompileObserver& observer)
      : built_(built), builder_(builder), observer_(observer) {
    for (BuiltKernel& kernel : built_.kernels) {
      if (!kernel.reused) missing_.push_back(&kernel);
    }
    // The largest first, so that no thread is left alone with one at the end.
    std::stable_sort(missing_.begin(), missing_.end(), [](const BuiltKernel* a, const BuiltKernel* b) {
      return a->source.text.size() > b->source.text.size();
    });
  }

  absl::Status Run(int threads) {
    const int count = std::min<int>(threads, static_cast<int>(missing_.size()));
    std::vector<std::thread> others;
    for (int i = 1; i < count; ++i) others.emplace_back([this] { Work(); });
    Work();
    for (std::thread& other : others) other.join();
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  void Work() {
    for (size_t i = next_++; i < missing_.size() && !failed_; i = next_++) {
      BuiltKernel& kernel = *missing_[i];
      build::BuildTimings timings;
      absl::StatusOr<std::string> object = builder_.Build(kernel.source.text, kernel.source.symbol, &timings);
      absl::MutexLock lock(&mutex_);
      if (!object.ok()) {
        Fail(object.status());
      } else if (observer_.Cancelled()) {
        Fail(absl::CancelledError("nobody waits for the compile any more"));
      } else {
        kernel.object = *std::move(object);
        kernel.compile_ms = timings.compile_ms;
        kernel.link_ms = timings.link_ms;
        observer_.OnStage("build", static_cast<int>(built_.kernels.size() - missing_.size()) + ++done_,
                          static_cast<int>(built_.kernels.size()));
      }
    }
  }

  void Fail(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (status_.ok()) status_ = std::move(status);
    failed_ = true;
  }

  BuiltKernels& built_;
  build::CpuBuilder& builder_;
  CompileObserver& observer_;
  std::vector<BuiltKernel*> missing_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
  absl::Mutex mutex_;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  int done_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<BuiltKernels> BuildKernels(const loops::Program& program, const v1::Target& target, int threads,
                                          KernelCache& cache, CompileObserver& observer) {
  observer.OnStage("codegen", 0, 0);
  absl::StatusOr<build::CpuBuilder*> builder = BuilderFor(target.isa());
  if (!builder.ok()) return builder.status();
  absl::StatusOr<BuiltKernels> built = GenerateAll(program, target);
  if (!built.ok()) return built;
  if (observer.Cancelled()) return absl::CancelledError("nobody waits for the compile any more");
  TakeFromCache(*built, cache);
  absl::Status status = ParallelBuild(*built, **builder, observer).Run(threads);
  if (!status.ok()) return status;
  if (observer.Cancelled()) return absl::CancelledError("nobody waits for the compile any more");
  return built;
}

}  // namespace stepone::compiler
