#include "client/plan_run.h"

#include <chrono>
#include <mutex>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include "client/tensor_memory.h"

namespace stepone::client {
namespace {

// Strides of dimensions with one element, and of empty tensors, address nothing.
bool SameLayout(const at::Tensor& tensor, const Buffer& buffer) {
  if (tensor.is_conj() || tensor.is_neg()) return false;
  if (tensor.numel() == 0) return true;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (buffer.sizes[d] > 1 && tensor.stride(d) != buffer.strides[d]) return false;
  }
  return true;
}

std::string Describe(const Buffer& buffer) {
  std::ostringstream text;
  text << DTypeName(buffer.dtype) << c10::IntArrayRef(buffer.sizes);
  return text.str();
}

std::string Describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  std::ostringstream text;
  text << c10::toString(tensor.scalar_type()) << tensor.sizes() << " on " << tensor.device();
  return text.str();
}

bool Matches(const at::Tensor& tensor, const Buffer& buffer) {
  return tensor.defined() && tensor.device().is_cpu() && tensor.layout() == c10::kStrided &&
         tensor.scalar_type() == ToScalarType(buffer.dtype) && tensor.sizes() == c10::IntArrayRef(buffer.sizes);
}

void* DataOf(const at::Tensor& tensor) { return tensor.numel() == 0 ? nullptr : tensor.mutable_data_ptr(); }

void Fail(int32_t status, const KernelInfo& kernel) {
  std::string ops;
  for (const std::string& op : kernel.source_ops) ops += (ops.empty() ? "" : ", ") + op;
  TORCH_CHECK_INDEX(status != STEPONE_KERNEL_INDEX_OUT_OF_RANGE, "index out of range in self (fused kernel ",
                    kernel.name, " of ", ops, ")");
  TORCH_CHECK(status != STEPONE_KERNEL_DIVISION_BY_ZERO, "ZeroDivisionError (fused kernel ", kernel.name, " of ", ops,
              ")");
  TORCH_CHECK(false, "stepone: kernel ", kernel.name, " returned the unknown status ", status);
}

// Why one input does not fit, or nothing.
std::string Mismatch(const BoundPlan& bound, const InputSpec& spec, const c10::IValue& value) {
  if (spec.unused || spec.kind == InputSpec::Kind::kIgnored) return "";
  if (spec.kind == InputSpec::Kind::kInt) {
    if (value.isInt() && value.toInt() == spec.int_value) return "";
    return c10::str("is ", value, ", the plan is for the size ", spec.int_value);
  }
  if (spec.kind == InputSpec::Kind::kHostScalar) return value.isScalar() ? "" : "is no number";
  const Buffer& buffer = bound.buffer(spec.buffer);
  if (buffer.opaque) return "";
  if (!value.isTensor()) return c10::str("is no tensor, the plan expects ", Describe(buffer));
  const at::Tensor& tensor = value.toTensor();
  if (!Matches(tensor, buffer))
    return c10::str("is ", Describe(tensor), ", the plan expects ", Describe(buffer), " on cpu");
  if (!tensor.has_storage()) return "has no memory of its own";
  if (bound.view_returned[spec.buffer] && !SameLayout(tensor, buffer)) {
    return "has other strides than the plan was made for, and a view of it is returned";
  }
  return "";
}

}  // namespace

std::string InputMismatch(const BoundPlan& bound, const std::vector<c10::IValue>& inputs) {
  const std::vector<InputSpec>& specs = bound.plan().inputs;
  if (inputs.size() != specs.size()) {
    return c10::str("got ", inputs.size(), " inputs, the plan has ", specs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (std::string why = Mismatch(bound, specs[i], inputs[i]); !why.empty()) return c10::str("input ", i, " ", why);
  }
  return "";
}

Frame::Frame(const BoundPlan& bound) : pointers(bound.places.size(), nullptr), values(bound.places.size()) {}

PlanRun::PlanRun(const BoundPlan& bound, Frame& frame, StepTimer* timers)
    : bound_(bound), frame_(frame), timers_(timers) {
  BindArena();
}

PlanRun::~PlanRun() {
  for (uint32_t index : bound_.transient) frame_.values[index] = c10::IValue();
}

// Points the tables at the arena and the constants. Nothing to do when the frame got the same arena as last time.
void PlanRun::BindArena() {
  const uint64_t id = frame_.arena != nullptr ? frame_.arena->id() : ~uint64_t{0};
  if (frame_.bound_arena == id) return;
  for (uint32_t root : bound_.arena_roots) {
    char* data = frame_.arena->data() + bound_.buffer(root).offset;
    if (bound_.places[root].needs_tensor) frame_.values[root] = BorrowTensor(bound_.buffer(root), data);
    Place(root, data);
  }
  for (size_t i = 0; i < bound_.constant_roots.size(); ++i) Define(bound_.constant_roots[i], bound_.constants[i]);
  frame_.bound_arena = id;
}

// Sets the pointers of `root` and its views, and the tensors of views that need one from the root's.
void PlanRun::Place(uint32_t root, void* data) {
  frame_.pointers[root] = data;
  for (uint32_t view : bound_.views[root]) {
    const Buffer& buffer = bound_.buffer(view);
    const BoundPlan::Place& place = bound_.places[view];
    frame_.pointers[view] = static_cast<char*>(data) + place.offset * ItemSize(buffer.dtype);
    if (place.needs_tensor) frame_.values[view] = ViewTensor(frame_.values[root].toTensor(), buffer, place.offset);
  }
}

void PlanRun::Define(uint32_t root, c10::IValue value) {
  frame_.values[root] = std::move(value);
  if (!bound_.buffer(root).opaque) Place(root, DataOf(frame_.values[root].toTensor()));
}

void PlanRun::Release(uint32_t root) {
  frame_.values[root] = c10::IValue();
  for (uint32_t view : bound_.views[root]) frame_.values[view] = c10::IValue();
}

// `tensor`, or a copy of it that has the buffer's strides, and memory: autograd makes tensors of zeros that have none.
// REQUIRES: Matches().
at::Tensor PlanRun::Fit(const at::Tensor& tensor, const Buffer& buffer) {
  if (SameLayout(tensor, buffer) && !tensor._is_zerotensor()) return tensor;
  ++counters_.restrided;
  at::Tensor copy = at::empty_strided(buffer.sizes, buffer.strides, tensor.options());
  copy.copy_(tensor);
  return copy;
}

void PlanRun::BindInput(size_t index, c10::IValue value) {
  const InputSpec& spec = bound_.plan().inputs[index];
  if (spec.unused || spec.kind == InputSpec::Kind::kIgnored || spec.kind == InputSpec::Kind::kInt) return;
  const Buffer& buffer = bound_.buffer(spec.buffer);
  if (buffer.opaque) {
    Define(spec.buffer, std::move(value));
    return;
  }
  at::Tensor tensor = std::move(value).toTensor();
  at::Tensor fitting = Fit(tensor, buffer);
  if (!fitting.is_same(tensor)) stands_.push_back(Stand{spec.buffer, std::move(tensor)});
  Define(spec.buffer, std::move(fitting));
}

std::vector<c10::IValue> PlanRun::Execute(std::vector<c10::IValue> inputs) {
  const Plan& plan = bound_.plan();
  for (size_t i = 0; i < inputs.size(); ++i) BindInput(i, std::move(inputs[i]));
  inputs.clear();
  for (uint32_t root : bound_.unused_outputs) Define(root, NewOutput(bound_.buffer(root)));
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    if (timers_ == nullptr) {
      RunStep(i);
      continue;
    }
    const auto start = std::chrono::steady_clock::now();
    RunStep(i);
    timers_[i].nanoseconds += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
    ++timers_[i].calls;
  }
  WriteBack();
  std::vector<c10::IValue> outputs;
  outputs.reserve(plan.outputs.size());
  for (const OutputSpec& spec : plan.outputs) outputs.push_back(TakeOutput(spec));
  return outputs;
}

void PlanRun::RunStep(size_t index) {
  const BoundPlan::StepInfo& info = bound_.steps[index];
  for (uint32_t root : info.allocate) Define(root, NewOutput(bound_.buffer(root)));
  const Step& step = bound_.plan().steps[index];
  if (const auto* launch = std::get_if<LaunchStep>(&step)) {
    Launch(*launch);
  } else if (const auto* call = std::get_if<CallStep>(&step)) {
    Call(*call, bound_.calls[info.call]);
  } else if (const auto* seed = std::get_if<SeedStep>(&step)) {
    DrawSeed(*seed);
  } else if (const auto* copy = std::get_if<CopyStep>(&step)) {
    frame_.values[copy->destination].toTensor().copy_(frame_.values[copy->source].toTensor());
  } else if (const auto* free = std::get_if<FreeStep>(&step)) {
    for (uint32_t root : free->buffers) Release(root);
  }
  for (uint32_t root : info.release) Release(root);
}

void PlanRun::Launch(const LaunchStep& step) {
  ++counters_.kernel_launches;
  if (step.units == 0) return;
  arguments_.clear();
  for (uint32_t buffer : step.buffers) arguments_.push_back(frame_.pointers[buffer]);
  void* const* arguments = arguments_.data();
  const stepone_kernel_fn kernel = bound_.program->kernels.functions[step.kernel];
  int32_t failure = STEPONE_KERNEL_OK;
  if (step.units <= step.grain) {
    failure = kernel(arguments, nullptr, 0, step.units);
  } else {
    std::atomic<int32_t> status{STEPONE_KERNEL_OK};
    at::parallel_for(0, step.units, step.grain, [&](int64_t begin, int64_t end) {
      const int32_t result = kernel(arguments, nullptr, begin, end);
      if (result != STEPONE_KERNEL_OK) status.store(result, std::memory_order_relaxed);
    });
    failure = status.load(std::memory_order_relaxed);
  }
  if (failure != STEPONE_KERNEL_OK) Fail(failure, bound_.plan().kernels[step.kernel]);
}

void PlanRun::Call(const CallStep& step, const AtenCall& call) {
  ++counters_.extern_calls;
  std::vector<c10::IValue> results = call.Run(frame_.values);
  if (call.writes_results()) return;
  for (size_t i = 0; i < step.results.size(); ++i) {
    if (!step.results[i]) continue;
    const uint32_t index = *step.results[i];
    const Buffer& buffer = bound_.buffer(index);
    if (buffer.opaque) {
      Define(index, std::move(results[i]));
      continue;
    }
    TORCH_CHECK(results[i].isTensor() && Matches(results[i].toTensor(), buffer), "stepone: ", step.node, ": ", step.op,
                " returned ", results[i].isTensor() ? Describe(results[i].toTensor()) : "no tensor",
                ", the plan expects ", Describe(buffer));
    Define(index, Fit(results[i].toTensor(), buffer));
  }
}

// From the default generator, so that torch.manual_seed() and a saved generator state govern the kernels' numbers too.
void PlanRun::DrawSeed(const SeedStep& step) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  std::lock_guard<std::mutex> lock(generator.mutex());
  const uint64_t seed = at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
  *static_cast<int64_t*>(frame_.pointers[step.buffer]) = static_cast<int64_t>(seed);
}

c10::IValue PlanRun::TakeOutput(const OutputSpec& spec) {
  if (spec.kind == OutputSpec::Kind::kNone) return c10::IValue();
  if (spec.kind == OutputSpec::Kind::kInt) return c10::IValue(spec.int_value);
  const c10::IValue& value = frame_.values[spec.buffer];
  if (!value.isTensor() || bound_.buffer(spec.buffer).opaque) return value;
  const uint32_t root = bound_.places[spec.buffer].root;
  for (const Stand& stand : stands_) {
    if (stand.buffer != root) continue;
    return stand.original;  // never a view of it: InputMismatch() sees to that
  }
  const at::Tensor tensor = value.toTensor();
  // What an ATen step returned may be a view of scratch memory, and constants belong to all runs: the caller gets a
  // copy of either.
  const char* data = static_cast<const char*>(frame_.pointers[spec.buffer]);
  const bool in_arena =
      frame_.arena != nullptr && data >= frame_.arena->data() && data < frame_.arena->data() + frame_.arena->bytes();
  if (!in_arena && bound_.root_storage(spec.buffer) != Storage::kConstant) return tensor;
  ++counters_.restrided;
  return tensor.clone();
}

// Inputs that had to be copied and may have been written into are brought up to date.
void PlanRun::WriteBack() {
  for (const Stand& stand : stands_) {
    const c10::IValue& copy = frame_.values[stand.buffer];
    if (!bound_.may_write[stand.buffer] || !copy.isTensor()) continue;
    if (at::has_internal_overlap(stand.original) != at::MemOverlap::No) continue;  // nothing can write into it
    stand.original.copy_(copy.toTensor());
  }
}

}  // namespace stepone::client
