// Runs plans: fused kernels and ATen calls in order, on tensors of the caller.
#ifndef STEPONE_CLIENT_EXECUTABLE_H_
#define STEPONE_CLIENT_EXECUTABLE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

#include "client/bound_plan.h"
#include "client/plan.h"
#include "client/plan_run.h"

namespace stepone::client {

// Sums over all executables of the process.
ExecutionCounters ProcessExecutionCounters();
void ResetProcessExecutionCounters();

// A plan bound to its kernels and to ATen's dispatcher.
//
// Thread-safe: any number of threads may call Run() at once; each run takes an arena from ArenaPool. Keeps the kernels
// mapped as long as it lives; tensors that Run() returned may outlive it.
class Executable {
 public:
  // Throws c10::Error when a step does not fit the ops of this LibTorch. REQUIRES: the plan passed CheckPlan(), and
  // there is a kernel function for each kernel.
  explicit Executable(std::shared_ptr<const Program> program);
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // Runs the plan on `inputs` (tensors, ints, floats, bools) and returns tensors, ints and None. Inputs that only
  // `inputs` holds are freed after the last step that needs them. Autograd and autocast are off inside.
  //
  // Throws c10::ValueError for inputs that the plan was not made for, c10::IndexError when a kernel met an index out of
  // range, c10::Error for a division by zero and for whatever an ATen call throws. After a throw no later step has run;
  // tensors that the plan mutates may have been written.
  std::vector<c10::IValue> Run(std::vector<c10::IValue> inputs) const;

  // Run() in two parts, for callers that want to know before they give their inputs away: why the plan can't run on
  // them (empty: it can), and the run itself, which REQUIRES that there was nothing against the inputs.
  std::string InputMismatch(const std::vector<c10::IValue>& inputs) const;
  std::vector<c10::IValue> RunChecked(std::vector<c10::IValue> inputs) const;

  const Plan& plan() const { return bound_.plan(); }
  int64_t num_launches() const { return bound_.num_launches; }
  int64_t num_calls() const { return static_cast<int64_t>(bound_.calls.size()); }
  ExecutionCounters counters() const { return counters_.Get(); }

  struct StepProfile {
    int64_t calls = 0;
    int64_t nanoseconds = 0;
  };
  // While on, each step is timed, at about 50 ns a step. Switching it on forgets earlier numbers.
  void SetProfiling(bool on);
  std::vector<StepProfile> Profile() const;  // one per step

 private:
  struct AtomicCounters {
    std::atomic<int64_t> runs{0}, kernel_launches{0}, extern_calls{0}, restrided{0}, errors{0};
    void Add(const ExecutionCounters& counters);
    ExecutionCounters Get() const;
  };
  friend ExecutionCounters ProcessExecutionCounters();
  friend void ResetProcessExecutionCounters();
  static AtomicCounters& ProcessCounters();

  std::unique_ptr<Frame> TakeFrame() const;
  void GiveFrame(std::unique_ptr<Frame> frame) const;

  const BoundPlan bound_;
  mutable AtomicCounters counters_;
  std::atomic<bool> profiling_{false};
  mutable std::vector<StepTimer> timers_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Frame>> idle_frames_;  // guarded by mutex_
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_EXECUTABLE_H_
