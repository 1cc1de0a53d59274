#include "client/aten_call.h"

#include <utility>

#include <ATen/ScalarOps.h>
#include <ATen/core/jit_type.h>
#include <c10/util/Exception.h>

namespace stepone::client {
namespace {

// "aten.add.Tensor" is {"aten::add", "Tensor"}; the overload "default" has no name in the dispatcher.
c10::OperatorHandle FindOp(const CallStep& step) {
  const size_t first = step.op.find('.'), last = step.op.rfind('.');
  TORCH_CHECK(first != std::string::npos && first < last, "stepone: op name ", step.op, " is malformed");
  const std::string name = step.op.substr(0, first) + "::" + step.op.substr(first + 1, last - first - 1);
  std::string overload = step.out_overload.empty() ? step.op.substr(last + 1) : step.out_overload;
  // An out= overload may be given by its full name.
  if (const size_t dot = overload.rfind('.'); dot != std::string::npos) overload.erase(0, dot + 1);
  if (overload == "default") overload.clear();
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
}

c10::MemoryFormat ToMemoryFormat(const std::string& name) {
  if (name == "contiguous_format") return c10::MemoryFormat::Contiguous;
  if (name == "preserve_format") return c10::MemoryFormat::Preserve;
  if (name == "channels_last") return c10::MemoryFormat::ChannelsLast;
  if (name == "channels_last_3d") return c10::MemoryFormat::ChannelsLast3d;
  TORCH_CHECK(false, "stepone: unknown memory format ", name);
}

c10::Layout ToLayout(const std::string& name) {
  if (name.empty() || name == "strided") return c10::Layout::Strided;
  if (name == "sparse_coo") return c10::Layout::Sparse;
  if (name == "sparse_csr") return c10::Layout::SparseCsr;
  if (name == "sparse_csc") return c10::Layout::SparseCsc;
  if (name == "sparse_bsr") return c10::Layout::SparseBsr;
  if (name == "sparse_bsc") return c10::Layout::SparseBsc;
  if (name == "_mkldnn") return c10::Layout::Mkldnn;
  if (name == "jagged") return c10::Layout::Jagged;
  TORCH_CHECK(false, "stepone: unknown layout ", name);
}

// A number or bool, as an op's Scalar takes it.
std::optional<c10::Scalar> ToScalar(const ArgumentValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return c10::Scalar(*i);
  if (const auto* d = std::get_if<double>(&value)) return c10::Scalar(*d);
  if (const auto* b = std::get_if<bool>(&value)) return c10::Scalar(*b);
  if (const auto* c = std::get_if<std::complex<double>>(&value)) return c10::Scalar(c10::complex<double>(*c));
  return std::nullopt;
}

// Ints in the wide sense of a schema: dtypes, layouts and memory formats travel as ints.
std::optional<int64_t> ToInt(const ArgumentValue& value) {
  if (const auto* i = std::get_if<int64_t>(&value)) return *i;
  if (const auto* b = std::get_if<bool>(&value)) return *b ? 1 : 0;
  if (const auto* t = std::get_if<DType>(&value)) return static_cast<int64_t>(ToScalarType(*t));
  if (const auto* l = std::get_if<LayoutName>(&value)) return static_cast<int64_t>(ToLayout(l->name));
  if (const auto* m = std::get_if<MemoryFormatName>(&value)) return static_cast<int64_t>(ToMemoryFormat(m->name));
  return std::nullopt;
}

std::optional<double> ToDouble(const ArgumentValue& value) {
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
  return std::nullopt;
}

std::optional<bool> ToBool(const ArgumentValue& value) {
  if (const auto* b = std::get_if<bool>(&value)) return *b;
  if (const auto* i = std::get_if<int64_t>(&value)) return *i != 0;
  return std::nullopt;
}

// What a Python call does with a number where a tensor is expected.
at::Tensor WrappedNumber(const c10::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

[[noreturn]] void Mismatch(const c10::Type& type) { TORCH_CHECK(false, "its value does not fit type ", type.str()); }

template <typename T>
c10::IValue ListOf(const std::vector<T>& values) {
  c10::List<T> list;
  list.reserve(values.size());
  for (const T value : values) list.push_back(value);
  return c10::IValue(std::move(list));
}

// A list of `T`, from a list or from one value that stands for `size` equal ones.
template <typename T, typename Convert>
std::optional<std::vector<T>> ToVector(const ArgumentValue& value, std::optional<int32_t> size, Convert convert) {
  if (const std::optional<T> one = convert(value)) return std::vector<T>(static_cast<size_t>(size.value_or(1)), *one);
  std::vector<T> list;
  const auto append = [&](const auto& entries) {
    for (const auto entry : entries) list.push_back(static_cast<T>(entry));
  };
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value))
    append(*ints);
  else if (const auto* doubles = std::get_if<std::vector<double>>(&value))
    append(*doubles);
  else if (const auto* bools = std::get_if<std::vector<bool>>(&value))
    append(*bools);
  else if (const auto* buffers = std::get_if<OptionalBufferList>(&value); buffers != nullptr && buffers->empty())
    return list;
  else
    return std::nullopt;
  return list;
}

bool IsEmptyList(const ArgumentValue& value) {
  if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) return ints->empty();
  if (const auto* doubles = std::get_if<std::vector<double>>(&value)) return doubles->empty();
  if (const auto* bools = std::get_if<std::vector<bool>>(&value)) return bools->empty();
  if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) return strings->empty();
  if (const auto* buffers = std::get_if<OptionalBufferList>(&value)) return buffers->empty();
  return false;
}

const PlanArgument* FindArgument(const CallStep& step, const std::string& name, size_t position) {
  for (const PlanArgument& argument : step.arguments) {
    if (argument.name == name) return &argument;
  }
  const bool unnamed = position < step.arguments.size() && step.arguments[position].name.empty();
  return unnamed ? &step.arguments[position] : nullptr;
}

}  // namespace

c10::ScalarType ToScalarType(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return c10::kDouble;
    case DType::kFloat32:
      return c10::kFloat;
    case DType::kFloat16:
      return c10::kHalf;
    case DType::kBFloat16:
      return c10::kBFloat16;
    case DType::kInt64:
      return c10::kLong;
    case DType::kInt32:
      return c10::kInt;
    case DType::kInt16:
      return c10::kShort;
    case DType::kInt8:
      return c10::kChar;
    case DType::kUInt8:
      return c10::kByte;
    case DType::kBool:
      return c10::kBool;
    case DType::kComplex64:
      return c10::kComplexFloat;
    case DType::kComplex128:
      return c10::kComplexDouble;
    case DType::kOther:
      break;
  }
  TORCH_CHECK(false, "stepone: dtype ", static_cast<int>(dtype), " has no counterpart");
}

AtenCall::AtenCall(const CallStep& step)
    : name_(step.op),
      op_(FindOp(step)),
      out_(!step.out_overload.empty()),
      results_are_list_(step.results_are_list),
      num_results_(step.results.size()) {
  size_t position = 0, next_result = 0;
  for (const c10::Argument& argument : op_.schema().arguments()) {
    const bool written = argument.alias_info() != nullptr && argument.alias_info()->isWrite();
    if (out_ && written && argument.is_out()) {
      TORCH_CHECK(next_result < step.results.size(), "stepone: ", step.node, ": ", step.op, " has too few results");
      slots_.emplace_back(TensorSlot{*step.results[next_result++]});
      continue;
    }
    const PlanArgument* given = FindArgument(step, argument.name(), position++);
    if (given == nullptr) {
      TORCH_CHECK(argument.default_value().has_value(), "stepone: ", step.node, ": ", step.op, " lacks argument ",
                  argument.name());
      slots_.emplace_back(*argument.default_value());
      continue;
    }
    try {
      slots_.push_back(Bind(given->value, *argument.type(), argument.N()));
    } catch (const c10::Error& error) {
      TORCH_CHECK(false, "stepone: ", step.node, ": argument ", argument.name(), " of ", step.op, ": ",
                  error.what_without_backtrace());
    }
    if (const auto* ref = std::get_if<BufferRef>(&given->value); ref != nullptr && written) {
      mutated_.push_back(ref->buffer);
    }
  }
}

AtenCall::Slot AtenCall::Bind(const ArgumentValue& value, const c10::Type& type,
                              std::optional<int32_t> list_size) const {
  const auto* ref = std::get_if<BufferRef>(&value);
  const bool none = std::holds_alternative<std::monostate>(value);
  switch (type.kind()) {
    case c10::TypeKind::OptionalType:
      if (none) return c10::IValue();
      return Bind(value, *type.expectRef<c10::OptionalType>().getElementType(), list_size);
    case c10::TypeKind::TensorType:
      if (ref != nullptr) return TensorSlot{ref->buffer};
      if (none) return c10::IValue(at::Tensor());
      if (const auto number = ToScalar(value)) return c10::IValue(WrappedNumber(*number));
      break;
    case c10::TypeKind::NumberType:
      if (ref != nullptr) return ScalarSlot{ref->buffer};
      if (const auto number = ToScalar(value)) return c10::IValue(*number);
      if (const auto number = ToInt(value)) return c10::IValue(*number);
      break;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::ScalarTypeType:
    case c10::TypeKind::LayoutType:
    case c10::TypeKind::MemoryFormatType:
      if (ref != nullptr) return ScalarSlot{ref->buffer};
      if (const auto number = ToInt(value)) return c10::IValue(*number);
      break;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      if (ref != nullptr) return ScalarSlot{ref->buffer};
      if (const auto number = ToDouble(value)) return c10::IValue(*number);
      break;
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      if (ref != nullptr) return ScalarSlot{ref->buffer};
      if (const auto flag = ToBool(value)) return c10::IValue(*flag);
      break;
    case c10::TypeKind::StringType:
      if (const auto* text = std::get_if<std::string>(&value)) return c10::IValue(*text);
      break;
    case c10::TypeKind::DeviceObjType:
      if (const auto* device = std::get_if<DeviceName>(&value)) return c10::IValue(c10::Device(device->type));
      break;
    case c10::TypeKind::GeneratorType:
      if (none) return c10::IValue();
      break;
    case c10::TypeKind::ListType:
      return BindList(value, *type.expectRef<c10::ListType>().getElementType(), list_size);
    default:
      break;
  }
  Mismatch(type);
}

AtenCall::Slot AtenCall::BindList(const ArgumentValue& value, const c10::Type& element,
                                  std::optional<int32_t> list_size) const {
  const auto* buffers = std::get_if<OptionalBufferList>(&value);
  switch (element.kind()) {
    case c10::TypeKind::TensorType: {
      if (buffers == nullptr && !IsEmptyList(value)) break;
      TensorListSlot slot;
      for (const auto& entry : buffers != nullptr ? *buffers : OptionalBufferList{}) {
        TORCH_CHECK(entry.has_value(), "a list of tensors with a None in it");
        slot.buffers.push_back(*entry);
      }
      return slot;
    }
    case c10::TypeKind::OptionalType:
      if (buffers == nullptr && !IsEmptyList(value)) break;
      return OptionalTensorListSlot{buffers != nullptr ? *buffers : OptionalBufferList{}};
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      if (buffers != nullptr && !buffers->empty()) {
        IntListSlot slot;
        for (const auto& entry : *buffers) slot.buffers.push_back(entry.value());
        return slot;
      }
      if (const auto list = ToVector<int64_t>(value, list_size, ToInt)) return ListOf(*list);
      break;
    case c10::TypeKind::FloatType:
      if (const auto list = ToVector<double>(value, list_size, ToDouble)) return ListOf(*list);
      break;
    case c10::TypeKind::BoolType:
      if (const auto list = ToVector<bool>(value, list_size, ToBool)) return ListOf(*list);
      break;
    case c10::TypeKind::StringType: {
      const auto* strings = std::get_if<std::vector<std::string>>(&value);
      if (strings == nullptr && !IsEmptyList(value)) break;
      return c10::IValue(c10::List<std::string>(strings != nullptr ? *strings : std::vector<std::string>{}));
    }
    case c10::TypeKind::NumberType: {
      c10::List<c10::Scalar> list;
      if (const auto* ints = std::get_if<std::vector<int64_t>>(&value)) {
        for (int64_t number : *ints) list.push_back(c10::Scalar(number));
      } else if (const auto* doubles = std::get_if<std::vector<double>>(&value)) {
        for (double number : *doubles) list.push_back(c10::Scalar(number));
      } else if (!IsEmptyList(value)) {
        break;
      }
      return c10::IValue(std::move(list));
    }
    default:
      break;
  }
  Mismatch(element);
}

void AtenCall::Push(const Slot& slot, const std::vector<c10::IValue>& values, torch::jit::Stack& stack) {
  if (const auto* constant = std::get_if<c10::IValue>(&slot)) {
    stack.push_back(*constant);
  } else if (const auto* tensor = std::get_if<TensorSlot>(&slot)) {
    const c10::IValue& value = values[tensor->buffer];
    // A host scalar (from item() or the caller) where the op takes a tensor.
    stack.push_back(value.isScalar() ? c10::IValue(WrappedNumber(value.toScalar())) : value);
  } else if (const auto* scalar = std::get_if<ScalarSlot>(&slot)) {
    const c10::IValue& value = values[scalar->buffer];
    stack.push_back(value.isTensor() ? c10::IValue(value.toTensor().item()) : value);
  } else if (const auto* tensors = std::get_if<TensorListSlot>(&slot)) {
    c10::List<at::Tensor> list;
    list.reserve(tensors->buffers.size());
    for (uint32_t buffer : tensors->buffers) list.push_back(values[buffer].toTensor());
    stack.push_back(std::move(list));
  } else if (const auto* optionals = std::get_if<OptionalTensorListSlot>(&slot)) {
    c10::List<std::optional<at::Tensor>> list;
    list.reserve(optionals->buffers.size());
    for (const auto& entry : optionals->buffers) {
      list.push_back(entry ? std::optional<at::Tensor>(values[*entry].toTensor()) : std::nullopt);
    }
    stack.push_back(std::move(list));
  } else if (const auto* ints = std::get_if<IntListSlot>(&slot)) {
    c10::List<int64_t> list;
    for (uint32_t buffer : ints->buffers) list.push_back(values[buffer].toInt());
    stack.push_back(std::move(list));
  }
}

std::vector<c10::IValue> AtenCall::Run(const std::vector<c10::IValue>& values) const {
  torch::jit::Stack stack;
  stack.reserve(slots_.size());
  for (const Slot& slot : slots_) Push(slot, values, stack);
  op_.callBoxed(stack);
  if (out_) return {};
  if (results_are_list_) {
    std::vector<c10::IValue> results;
    for (const c10::IValue& entry : stack) {
      if (!entry.isTensorList()) {
        results.push_back(entry);
        continue;
      }
      for (const at::Tensor& tensor : entry.toTensorVector()) results.emplace_back(tensor);
    }
    stack = std::move(results);
  }
  TORCH_CHECK(stack.size() >= num_results_, "stepone: ", name_, " returned ", stack.size(),
              " values, the plan expects ", num_results_);
  return stack;
}

}  // namespace stepone::client
