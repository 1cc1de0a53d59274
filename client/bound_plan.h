// A plan prepared for the executor: what can be worked out once, so that a run only does what depends on its inputs.
#ifndef STEPONE_CLIENT_BOUND_PLAN_H_
#define STEPONE_CLIENT_BOUND_PLAN_H_

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "client/aten_call.h"
#include "client/plan.h"

namespace stepone::client {

// Immutable after construction.
struct BoundPlan {
  // Throws c10::Error when a call does not fit the ops of this LibTorch. REQUIRES: the plan passed CheckPlan().
  explicit BoundPlan(std::shared_ptr<const Program> program);

  // Where a buffer's memory is.
  struct Place {
    uint32_t root = 0;          // the buffer that owns it; the buffer itself unless it is a view
    int64_t offset = 0;         // elements from the root's first
    bool needs_tensor = false;  // an ATen step, a copy or the caller takes it as a tensor
  };

  struct StepInfo {
    std::vector<uint32_t> allocate;  // OUTPUT buffers that this step is the first to use
    std::vector<uint32_t> release;   // INPUT and EXTERN roots that neither a later step nor an output uses
    size_t call = 0;                 // of a CallStep: index into calls
  };

  const Plan& plan() const { return program->plan; }
  const Buffer& buffer(uint32_t index) const { return program->plan.buffers[index]; }
  Storage root_storage(uint32_t index) const { return buffer(places[index].root).storage; }

  const std::shared_ptr<const Program> program;
  std::vector<Place> places;                 // by buffer
  std::vector<std::vector<uint32_t>> views;  // by root: its views
  std::vector<AtenCall> calls;
  std::vector<StepInfo> steps;
  std::vector<uint32_t> unused_outputs;  // OUTPUT buffers that no step uses
  std::vector<bool> may_write;           // by buffer, roots only: some step may write into it
  std::vector<bool> view_returned;       // by buffer, roots only: an output is a view of it
  std::vector<uint32_t> arena_roots;
  std::vector<uint32_t> constant_roots;
  std::vector<at::Tensor> constants;  // by position in constant_roots
  std::vector<uint32_t> transient;    // buffers whose value must not outlive a run
  int64_t num_launches = 0;

 private:
  void FindPlaces();
  void BindCalls();
  void FindLifetimes();
  void CopyConstants();
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_BOUND_PLAN_H_
