#include "compiler/passes/decompositions/rule.h"

#include <algorithm>
#include <utility>

#include "proto/str_cat.h"

namespace stepone::passes {

using ir::Dims;
using ir::Expr;
using ir::Scalar;

void CallSite::FailArgument(std::string_view name, std::string_view expected) {
  builder_.Fail("argument", StrCat(op(), " needs ", expected, " as argument '", name, "'"));
}

bool CallSite::IsNone(std::string_view name) const {
  const auto* value = Find(name);
  return value == nullptr || std::holds_alternative<ir::NoneArg>(*value);
}

bool CallSite::IsTensor(std::string_view name) const {
  const auto* value = Find(name);
  return value != nullptr && std::holds_alternative<ir::OperandRef>(*value);
}

bool CallSite::IsNumber(std::string_view name) const {
  const auto* value = Find(name);
  return value != nullptr && (std::holds_alternative<int64_t>(*value) || std::holds_alternative<double>(*value) ||
                              std::holds_alternative<bool>(*value));
}

std::optional<Expr> CallSite::OptionalTensor(std::string_view name) {
  if (IsNone(name)) return std::nullopt;
  return Tensor(name);
}

Expr CallSite::Tensor(std::string_view name) {
  if (IsTensor(name)) return builder_.Wrap(node_.operands[std::get<ir::OperandRef>(*Find(name)).operand]);
  FailArgument(name, "a tensor");
  return builder_.Full(0.0, ir::DType::kFloat32, {});
}

std::vector<std::optional<Expr>> CallSite::OptionalTensors(std::string_view name) {
  std::vector<std::optional<Expr>> list;
  const auto* value = Find(name);
  const auto* operands = value == nullptr ? nullptr : std::get_if<ir::OperandList>(value);
  if (operands == nullptr) {
    FailArgument(name, "a list of tensors");
    return list;
  }
  for (const int32_t operand : operands->operands) {
    if (operand < 0) {
      list.push_back(std::nullopt);
    } else {
      list.push_back(builder_.Wrap(node_.operands[operand]));
    }
  }
  return list;
}

std::vector<Expr> CallSite::Tensors(std::string_view name) {
  std::vector<Expr> list;
  for (const auto& entry : OptionalTensors(name)) {
    if (entry) {
      list.push_back(*entry);
    } else {
      FailArgument(name, "a list without None");
    }
  }
  if (list.empty()) {
    FailArgument(name, "a list that is not empty");
    list.push_back(builder_.Full(0.0, ir::DType::kFloat32, {}));
  }
  return list;
}

std::optional<Scalar> CallSite::OptionalNumber(std::string_view name) {
  if (IsNone(name)) return std::nullopt;
  return Number(name);
}

Scalar CallSite::Number(std::string_view name) {
  if (const auto* value = Find(name)) {
    if (const auto* integer = std::get_if<int64_t>(value)) return *integer;
    if (const auto* real = std::get_if<double>(value)) return *real;
    if (const auto* boolean = std::get_if<bool>(value)) return *boolean;
  }
  FailArgument(name, "a number");
  return int64_t{0};
}

int64_t CallSite::Int(std::string_view name) {
  if (const auto* value = Find(name)) {
    if (const auto* integer = std::get_if<int64_t>(value)) return *integer;
    if (const auto* boolean = std::get_if<bool>(value)) return *boolean ? 1 : 0;
  }
  FailArgument(name, "an integer");
  return 0;
}

std::optional<int64_t> CallSite::OptionalInt(std::string_view name) {
  if (IsNone(name)) return std::nullopt;
  return Int(name);
}

double CallSite::Float(std::string_view name) { return ir::ToDouble(Number(name)); }

bool CallSite::Bool(std::string_view name) { return Int(name) != 0; }

Dims CallSite::Ints(std::string_view name) {
  // Beyond any size, and small enough to be added to one.
  constexpr int64_t kMost = int64_t{1} << 48;
  if (const auto* value = Find(name)) {
    if (const auto* dims = std::get_if<Dims>(value)) {
      const bool sane = std::all_of(dims->begin(), dims->end(), [](int64_t n) { return n >= -kMost && n <= kMost; });
      if (sane) return *dims;
      FailArgument(name, "integers within reason");
      return {};
    }
    if (const auto* integer = std::get_if<int64_t>(value)) return {*integer};
    // An empty list does not say of what.
    const auto* operands = std::get_if<ir::OperandList>(value);
    if (operands != nullptr && operands->operands.empty()) return {};
  }
  FailArgument(name, "a list of integers");
  return {};
}

Dims CallSite::OptionalInts(std::string_view name) { return IsNone(name) ? Dims() : Ints(name); }

std::vector<bool> CallSite::Bools(std::string_view name) {
  if (const auto* value = Find(name)) {
    if (const auto* bools = std::get_if<std::vector<bool>>(value)) return *bools;
  }
  FailArgument(name, "a list of booleans");
  return std::vector<bool>(3, false);
}

std::string CallSite::String(std::string_view name) {
  if (IsNone(name)) return "";
  if (const auto* text = std::get_if<std::string>(Find(name))) return *text;
  FailArgument(name, "a string");
  return "";
}

const ir::TensorType* CallSite::Result(int i) const {
  if (i >= num_results() || node_.results[i] == ir::kNoValue) return nullptr;
  return &builder_.graph().type(node_.results[i]);
}

const ir::TensorType& CallSite::ResultType() {
  const ir::TensorType* type = Result(0);
  if (type == nullptr) builder_.Fail("results", StrCat(op(), " has one result, which is not among the call's"));
  return type == nullptr ? nothing_ : *type;
}

ir::DType CallSite::ResultDType(Expr x, int i) const {
  const ir::TensorType* type = Result(i);
  return type == nullptr ? x.dtype() : type->dtype;
}

}  // namespace stepone::passes
