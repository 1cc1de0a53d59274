#include "compiler/ir/scalar.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace stepone::ir {
namespace {

float RoundToBFloat16(float value) {
  if (std::isnan(value)) return value;
  uint32_t bits = std::bit_cast<uint32_t>(value);
  bits += 0x7FFF + ((bits >> 16) & 1);
  return std::bit_cast<float>(bits & 0xFFFF0000u);
}

float RoundToFloat16(float value) {
  if (std::isnan(value) || std::isinf(value)) return value;
  constexpr int kMinExponent = -14;  // of normal numbers
  int exponent = 0;
  std::frexp(value, &exponent);
  const int lowest_bit = std::max(exponent - 1, kMinExponent) - 10;
  const float rounded = static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(value, -lowest_bit)), lowest_bit));
  if (std::abs(rounded) > 65504.0f) return std::copysign(std::numeric_limits<float>::infinity(), value);
  return rounded;
}

// Rank of a dtype within its kind.
int Width(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kComplex128:
      return 4;
    case DType::kFloat32:
    case DType::kInt32:
    case DType::kComplex64:
      return 3;
    case DType::kInt16:
      return 2;
    default:
      return 1;
  }
}

}  // namespace

double ToDouble(const Scalar& scalar) {
  return std::visit([](auto value) { return static_cast<double>(value); }, scalar);
}

int64_t ToInt64(const Scalar& scalar) {
  if (const auto* real = std::get_if<double>(&scalar)) {
    if (!(*real >= -0x1p63 && *real < 0x1p63)) return std::numeric_limits<int64_t>::min();
    return static_cast<int64_t>(*real);
  }
  return std::visit([](auto value) { return static_cast<int64_t>(value); }, scalar);
}

double RoundTo(DType dtype, double value) {
  if (dtype == DType::kFloat64) return value;
  const float single = static_cast<float>(value);  // torch, too, goes to 16 bits by way of float32
  if (dtype == DType::kBFloat16) return RoundToBFloat16(single);
  if (dtype == DType::kFloat16) return RoundToFloat16(single);
  return single;
}

int64_t WrapTo(DType dtype, int64_t value) {
  switch (dtype) {
    case DType::kInt32:
      return static_cast<int32_t>(value);
    case DType::kInt16:
      return static_cast<int16_t>(value);
    case DType::kInt8:
      return static_cast<int8_t>(value);
    case DType::kUInt8:
      return static_cast<uint8_t>(value);
    case DType::kBool:
      return value != 0 ? 1 : 0;
    default:
      return value;
  }
}

Scalar Convert(const Scalar& scalar, DType dtype) {
  if (dtype == DType::kBool) return ToDouble(scalar) != 0;
  if (IsFloat(dtype)) return RoundTo(dtype, ToDouble(scalar));
  return WrapTo(dtype, ToInt64(scalar));
}

Attr ToAttr(const Scalar& scalar) {
  return std::visit([](auto value) { return Attr(value); }, scalar);
}

Scalar ToScalar(const Attr& attr) {
  if (const auto* value = std::get_if<bool>(&attr)) return *value;
  if (const auto* value = std::get_if<int64_t>(&attr)) return *value;
  return std::get<double>(attr);
}

DType Promote(DType a, DType b) {
  if (a == b) return a;
  const auto complex = [](DType d) { return d == DType::kComplex64 || d == DType::kComplex128; };
  if (complex(a) || complex(b)) {
    const bool wide = (complex(a) ? a == DType::kComplex128 : a == DType::kFloat64) ||
                      (complex(b) ? b == DType::kComplex128 : b == DType::kFloat64);
    return wide ? DType::kComplex128 : DType::kComplex64;
  }
  if (IsFloat(a) != IsFloat(b)) return IsFloat(a) ? a : b;
  if (IsFloat(a)) return Width(a) == Width(b) ? DType::kFloat32 : Width(a) > Width(b) ? a : b;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  if (Width(a) != Width(b)) return Width(a) > Width(b) ? a : b;
  return DType::kInt16;  // int8 with uint8
}

int ResultType::Kind(DType dtype) {
  if (dtype == DType::kBool) return 0;
  if (IsInteger(dtype)) return 1;
  return IsFloat(dtype) ? 2 : 3;
}

void ResultType::Add(int priority, DType dtype) {
  DType& found = found_[priority];
  found = found == DType::kOther ? dtype : Promote(found, dtype);
}

void ResultType::AddTensor(const TensorType& type) { Add(type.sizes.empty() ? 1 : 0, type.dtype); }

void ResultType::AddScalar(const Scalar& scalar) {
  // A Python float stands for the default dtype; it is alone in that only in graphs without any tensor of its kind.
  Add(2, std::holds_alternative<bool>(scalar)      ? DType::kBool
         : std::holds_alternative<int64_t>(scalar) ? DType::kInt64
                                                   : DType::kFloat32);
}

DType ResultType::Get() const {
  DType result = DType::kOther;
  for (const DType found : found_) {
    if (found == DType::kOther) continue;
    if (result == DType::kOther || Kind(found) > Kind(result)) result = found;
  }
  return result;
}

DType ComputeType(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16 ? DType::kFloat32 : dtype;
}

}  // namespace stepone::ir
