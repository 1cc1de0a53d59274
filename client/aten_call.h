// One ATen call of a plan, bound to the dispatcher: arguments are converted by the op's schema once, not per run.
#ifndef STEPONE_CLIENT_ATEN_CALL_H_
#define STEPONE_CLIENT_ATEN_CALL_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include "client/plan.h"

namespace stepone::client {

c10::ScalarType ToScalarType(DType dtype);

// Immutable after construction; any number of threads may run it at once.
class AtenCall {
 public:
  // Throws c10::Error when there is no such op or an argument does not fit its schema; the message names the node.
  explicit AtenCall(const CallStep& step);

  // Calls the op. `values` holds a tensor, number or bool for each buffer that an argument names; with an out= overload
  // also for each result. Returns one entry per result of the step, undefined entries for results that are not there;
  // with an out= overload nothing. Throws what the op throws.
  std::vector<c10::IValue> Run(const std::vector<c10::IValue>& values) const;

  bool writes_results() const { return out_; }
  // Buffers that the op writes in place, by its schema.
  const std::vector<uint32_t>& mutated() const { return mutated_; }
  const std::string& name() const { return name_; }

 private:
  // An argument that is not known before the run.
  struct TensorSlot {
    uint32_t buffer;
  };
  struct ScalarSlot {
    uint32_t buffer;
  };  // number or bool
  struct TensorListSlot {
    std::vector<uint32_t> buffers;
  };
  struct OptionalTensorListSlot {
    OptionalBufferList buffers;
  };
  struct IntListSlot {
    std::vector<uint32_t> buffers;
  };
  using Slot = std::variant<c10::IValue, TensorSlot, ScalarSlot, TensorListSlot, OptionalTensorListSlot, IntListSlot>;

  Slot Bind(const ArgumentValue& value, const c10::Type& type, std::optional<int32_t> list_size) const;
  Slot BindList(const ArgumentValue& value, const c10::Type& element, std::optional<int32_t> list_size) const;
  static void Push(const Slot& slot, const std::vector<c10::IValue>& values, torch::jit::Stack& stack);

  std::string name_;
  c10::OperatorHandle op_;
  bool out_;
  bool results_are_list_;
  size_t num_results_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> mutated_;
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_ATEN_CALL_H_
