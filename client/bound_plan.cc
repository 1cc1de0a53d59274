#include "client/bound_plan.h"

#include <cstring>
#include <utility>

#include <c10/util/Exception.h>

#include "client/tensor_memory.h"

namespace stepone::client {
namespace {

void AppendArguments(const CallStep& step, std::vector<uint32_t>& buffers) {
  for (const PlanArgument& argument : step.arguments) {
    if (const auto* ref = std::get_if<BufferRef>(&argument.value)) buffers.push_back(ref->buffer);
    if (const auto* list = std::get_if<OptionalBufferList>(&argument.value)) {
      for (const auto& entry : *list) {
        if (entry) buffers.push_back(*entry);
      }
    }
  }
}

// Buffers that a step reads or writes. A FreeStep uses nothing.
std::vector<uint32_t> BuffersOf(const Step& step) {
  std::vector<uint32_t> buffers;
  if (const auto* launch = std::get_if<LaunchStep>(&step)) {
    buffers = launch->buffers;
  } else if (const auto* call = std::get_if<CallStep>(&step)) {
    AppendArguments(*call, buffers);
    for (const auto& result : call->results) {
      if (result) buffers.push_back(*result);
    }
  } else if (const auto* seed = std::get_if<SeedStep>(&step)) {
    buffers = {seed->buffer};
  } else if (const auto* copy = std::get_if<CopyStep>(&step)) {
    buffers = {copy->source, copy->destination};
  }
  return buffers;
}

}  // namespace

BoundPlan::BoundPlan(std::shared_ptr<const Program> bound) : program(std::move(bound)) {
  TORCH_CHECK(program->kernels.functions.size() == plan().kernels.size(), "stepone: plan has ", plan().kernels.size(),
              " kernels, ", program->kernels.functions.size(), " are mapped");
  FindPlaces();
  BindCalls();
  FindLifetimes();
  CopyConstants();
}

void BoundPlan::FindPlaces() {
  const size_t count = plan().buffers.size();
  places.resize(count);
  views.resize(count);
  may_write.assign(count, false);
  view_returned.assign(count, false);
  for (uint32_t i = 0; i < count; ++i) {
    Place& place = places[i];
    for (place.root = i; buffer(place.root).storage == Storage::kView; place.root = buffer(place.root).index) {
      place.offset += buffer(place.root).offset;
    }
    if (place.root != i) views[place.root].push_back(i);
    const Storage storage = root_storage(i);
    if (storage != Storage::kArena && storage != Storage::kConstant) transient.push_back(i);
    if (buffer(i).storage == Storage::kArena) arena_roots.push_back(i);
    if (buffer(i).storage == Storage::kConstant) constant_roots.push_back(i);
  }
}

void BoundPlan::BindCalls() {
  const auto mark = [this](uint32_t index) {
    places[index].needs_tensor = true;
    places[places[index].root].needs_tensor = true;  // a view's tensor is made from its root's
  };
  steps.resize(plan().steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = plan().steps[i];
    if (const auto* call = std::get_if<CallStep>(&step)) {
      steps[i].call = calls.size();
      calls.emplace_back(*call);
      for (uint32_t used : BuffersOf(step)) mark(used);
      for (uint32_t written : calls.back().mutated()) may_write[places[written].root] = true;
    } else if (const auto* copy = std::get_if<CopyStep>(&step)) {
      mark(copy->source);
      mark(copy->destination);
      may_write[places[copy->destination].root] = true;
    } else if (const auto* launch = std::get_if<LaunchStep>(&step)) {
      ++num_launches;
      for (uint32_t used : launch->buffers) may_write[places[used].root] = true;  // the plan does not say which
    }
  }
  for (const OutputSpec& output : plan().outputs) {
    if (output.kind != OutputSpec::Kind::kBuffer) continue;
    mark(output.buffer);
    if (places[output.buffer].root != output.buffer) view_returned[places[output.buffer].root] = true;
  }
}

void BoundPlan::FindLifetimes() {
  constexpr size_t kNever = ~size_t{0};
  const size_t count = plan().buffers.size();
  std::vector<size_t> first(count, kNever), last(count, kNever);
  for (size_t i = 0; i < steps.size(); ++i) {
    for (uint32_t used : BuffersOf(plan().steps[i])) {
      const uint32_t root = places[used].root;
      if (first[root] == kNever) first[root] = i;
      last[root] = i;
    }
  }
  std::vector<bool> returned(count, false);
  for (const OutputSpec& output : plan().outputs) {
    if (output.kind == OutputSpec::Kind::kBuffer) returned[places[output.buffer].root] = true;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const Storage storage = buffer(i).storage;
    if (storage == Storage::kOutput) {
      if (first[i] != kNever) {
        steps[first[i]].allocate.push_back(i);
      } else {
        unused_outputs.push_back(i);
      }
    }
    const bool held = storage == Storage::kInput || storage == Storage::kExtern || storage == Storage::kOutput;
    if (held && !returned[i] && last[i] != kNever) steps[last[i]].release.push_back(i);
  }
}

void BoundPlan::CopyConstants() {
  for (uint32_t root : constant_roots) {
    at::Tensor tensor = NewOutput(buffer(root));
    const std::string& bytes = plan().constants[buffer(root).index];
    const auto size = static_cast<size_t>(SpanElements(buffer(root)) * ItemSize(buffer(root).dtype));
    if (size > 0) std::memcpy(tensor.mutable_data_ptr(), bytes.data(), size);
    constants.push_back(std::move(tensor));
  }
}

}  // namespace stepone::client
