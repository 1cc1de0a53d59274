#include "compiler/ir/types.h"

#include <algorithm>
#include <array>
#include <utility>

namespace stepone::ir {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

constexpr std::array<DTypeRow, 13> kDTypes = {{
    {DType::kFloat64, "f64", 8},
    {DType::kFloat32, "f32", 4},
    {DType::kFloat16, "f16", 2},
    {DType::kBFloat16, "bf16", 2},
    {DType::kInt64, "i64", 8},
    {DType::kInt32, "i32", 4},
    {DType::kInt16, "i16", 2},
    {DType::kInt8, "i8", 1},
    {DType::kUInt8, "u8", 1},
    {DType::kBool, "b1", 1},
    {DType::kComplex64, "c64", 8},
    {DType::kComplex128, "c128", 16},
    {DType::kOther, "other", 0},
}};

std::string Join(const Dims& dims) {
  std::string text;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) text += ',';
    text += std::to_string(dims[i]);
  }
  return text;
}

}  // namespace

int64_t ByteSize(DType dtype) { return kDTypes[static_cast<size_t>(dtype) - 1].bytes; }

std::string_view Name(DType dtype) { return kDTypes[static_cast<size_t>(dtype) - 1].name; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

bool IsInteger(DType dtype) {
  return dtype == DType::kInt64 || dtype == DType::kInt32 || dtype == DType::kInt16 || dtype == DType::kInt8 ||
         dtype == DType::kUInt8;
}

bool IsFusable(DType dtype) { return IsFloat(dtype) || IsInteger(dtype) || dtype == DType::kBool; }

int64_t TensorType::NumElements() const {
  uint64_t count = 1;  // wraps where sizes make no sense, which the verifier and the importer find out
  for (const int64_t size : sizes) count *= static_cast<uint64_t>(size);
  return static_cast<int64_t>(count);
}

Dims ContiguousStrides(const Dims& sizes) {
  Dims strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * std::max<int64_t>(sizes[i], 1);
  return strides;
}

TensorType Contiguous(DType dtype, Dims sizes) {
  TensorType type;
  type.dtype = dtype;
  type.strides = ContiguousStrides(sizes);
  type.sizes = std::move(sizes);
  return type;
}

bool IsContiguous(const TensorType& type) {
  if (type.NumElements() == 0) return true;
  int64_t expected = 1;
  for (size_t i = type.sizes.size(); i-- > 0;) {
    if (type.sizes[i] == 1) continue;
    if (type.strides[i] != expected) return false;
    expected *= type.sizes[i];
  }
  return true;
}

int64_t StorageExtent(const TensorType& type) {
  int64_t extent = 1;
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i] == 0) return 0;
    extent += (type.sizes[i] - 1) * type.strides[i];
  }
  return extent;
}

std::string ToString(const TensorType& type) {
  std::string text = type.plain ? "" : "opaque:";
  text += Name(type.dtype);
  text += '[' + Join(type.sizes) + ']';
  // Printed whenever they are not the usual ones, also where they do not matter: the text form loses nothing.
  if (type.strides != ContiguousStrides(type.sizes)) text += '{' + Join(type.strides) + '}';
  return text;
}

}  // namespace stepone::ir
