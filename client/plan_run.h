// One run of a plan.
#ifndef STEPONE_CLIENT_PLAN_RUN_H_
#define STEPONE_CLIENT_PLAN_RUN_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

#include "client/arena_pool.h"
#include "client/bound_plan.h"

namespace stepone::client {

struct ExecutionCounters {
  int64_t runs = 0;
  int64_t kernel_launches = 0;
  int64_t extern_calls = 0;
  int64_t restrided = 0;  // tensors copied because their strides (or their memory) were not the traced ones
  int64_t errors = 0;     // runs that threw
};

struct StepTimer {
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> nanoseconds{0};
};

// Tables of one run at a time, kept between runs: entries of arena and constant buffers stay, the others come and go.
struct Frame {
  explicit Frame(const BoundPlan& bound);

  std::unique_ptr<Arena> arena;     // null between runs
  uint64_t bound_arena = 0;         // the arena that the tables point into
  std::vector<void*> pointers;      // by buffer: first element
  std::vector<c10::IValue> values;  // by buffer: tensor or host value
};

// Why the plan can't run on `inputs`; empty when it can.
std::string InputMismatch(const BoundPlan& bound, const std::vector<c10::IValue>& inputs);

// Not thread-safe; lives for one run.
class PlanRun {
 public:
  // `timers` may be null; otherwise there is one for each step. REQUIRES: frame.arena holds what the plan needs.
  PlanRun(const BoundPlan& bound, Frame& frame, StepTimer* timers);
  PlanRun(const PlanRun&) = delete;
  PlanRun& operator=(const PlanRun&) = delete;
  ~PlanRun();  // lets go of all tensors of this run

  // See Executable::Run(). REQUIRES: InputMismatch() has nothing against `inputs`.
  std::vector<c10::IValue> Execute(std::vector<c10::IValue> inputs);
  const ExecutionCounters& counters() const { return counters_; }

 private:
  // A copy that stands in for an input with other strides, and the input itself.
  struct Stand {
    uint32_t buffer;
    at::Tensor original;
  };

  void BindArena();
  void BindInput(size_t index, c10::IValue value);
  at::Tensor Fit(const at::Tensor& tensor, const Buffer& buffer);
  void Define(uint32_t root, c10::IValue value);
  void Place(uint32_t root, void* data);
  void Release(uint32_t root);
  void RunStep(size_t index);
  void Launch(const LaunchStep& step);
  void Call(const CallStep& step, const AtenCall& call);
  void DrawSeed(const SeedStep& step);
  c10::IValue TakeOutput(const OutputSpec& spec);
  void WriteBack();

  const BoundPlan& bound_;
  Frame& frame_;
  StepTimer* const timers_;
  std::vector<Stand> stands_;
  std::vector<void*> arguments_;
  ExecutionCounters counters_;
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_PLAN_RUN_H_
