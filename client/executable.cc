#include "client/executable.h"

#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

namespace stepone::client {
namespace {

// ATen calls of a plan go straight to the CPU kernels: the graph was traced below autograd and autocast already.
struct BelowAutograd {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
  c10::AutoGradMode no_grad{false};
};

}  // namespace

ExecutionCounters ProcessExecutionCounters() { return Executable::ProcessCounters().Get(); }

void ResetProcessExecutionCounters() {
  Executable::AtomicCounters& counters = Executable::ProcessCounters();
  counters.runs = counters.kernel_launches = counters.extern_calls = counters.restrided = counters.errors = 0;
}

Executable::AtomicCounters& Executable::ProcessCounters() {
  static AtomicCounters counters;
  return counters;
}

void Executable::AtomicCounters::Add(const ExecutionCounters& from) {
  runs += from.runs;
  kernel_launches += from.kernel_launches;
  extern_calls += from.extern_calls;
  restrided += from.restrided;
  errors += from.errors;
}

ExecutionCounters Executable::AtomicCounters::Get() const {
  return {runs.load(), kernel_launches.load(), extern_calls.load(), restrided.load(), errors.load()};
}

Executable::Executable(std::shared_ptr<const Program> program)
    : bound_(std::move(program)), timers_(bound_.plan().steps.size()) {}

std::unique_ptr<Frame> Executable::TakeFrame() const {
  std::unique_ptr<Frame> frame;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_frames_.empty()) {
      frame = std::move(idle_frames_.back());
      idle_frames_.pop_back();
    }
  }
  if (frame == nullptr) frame = std::make_unique<Frame>(bound_);
  const auto bytes = static_cast<size_t>(bound_.plan().arena_bytes);
  if (bytes > 0) {
    frame->arena = ArenaPool::Global().Take(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, frame->arena != nullptr, "stepone: no memory for an arena of ", bytes, " bytes");
  }
  return frame;
}

void Executable::GiveFrame(std::unique_ptr<Frame> frame) const {
  if (frame->arena != nullptr) ArenaPool::Global().Give(std::move(frame->arena));
  std::lock_guard<std::mutex> lock(mutex_);
  idle_frames_.push_back(std::move(frame));
}

std::string Executable::InputMismatch(const std::vector<c10::IValue>& inputs) const {
  return client::InputMismatch(bound_, inputs);
}

std::vector<c10::IValue> Executable::Run(std::vector<c10::IValue> inputs) const {
  if (const std::string why = InputMismatch(inputs); !why.empty()) {
    const ExecutionCounters failed{/*runs=*/1, 0, 0, 0, /*errors=*/1};
    counters_.Add(failed);
    ProcessCounters().Add(failed);
    TORCH_CHECK_VALUE(false, "stepone: ", why);
  }
  return RunChecked(std::move(inputs));
}

std::vector<c10::IValue> Executable::RunChecked(std::vector<c10::IValue> inputs) const {
  const BelowAutograd guard;
  std::unique_ptr<Frame> frame = TakeFrame();
  std::vector<c10::IValue> outputs;
  ExecutionCounters counters;
  std::exception_ptr failure;
  {
    PlanRun run(bound_, *frame, profiling_.load(std::memory_order_relaxed) ? timers_.data() : nullptr);
    try {
      outputs = run.Execute(std::move(inputs));
    } catch (...) {
      failure = std::current_exception();
    }
    counters = run.counters();
  }
  GiveFrame(std::move(frame));
  counters.runs = 1;
  counters.errors = failure ? 1 : 0;
  counters_.Add(counters);
  ProcessCounters().Add(counters);
  if (failure) std::rethrow_exception(failure);
  return outputs;
}

void Executable::SetProfiling(bool on) {
  if (on) {
    for (StepTimer& timer : timers_) timer.calls = timer.nanoseconds = 0;
  }
  profiling_.store(on);
}

std::vector<Executable::StepProfile> Executable::Profile() const {
  std::vector<StepProfile> profile;
  for (const StepTimer& timer : timers_) profile.push_back({timer.calls.load(), timer.nanoseconds.load()});
  return profile;
}

}  // namespace stepone::client
