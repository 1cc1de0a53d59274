// Scalar and tensor types of the compiler's graph.
#ifndef STEPONE_COMPILER_IR_TYPES_H_
#define STEPONE_COMPILER_IR_TYPES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stepone::ir {

// Numbers equal v1::DType's, so that import and package convert by value.
enum class DType : uint8_t {
  kFloat64 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kInt64 = 5,
  kInt32 = 6,
  kInt16 = 7,
  kInt8 = 8,
  kUInt8 = 9,
  kBool = 10,
  kComplex64 = 11,
  kComplex128 = 12,
  kOther = 13,  // only extern steps may touch it
};

// Bytes per element; 0 for kOther.
int64_t ByteSize(DType dtype);
// "f32", "bf16", "i64", "u8", "b1", "c64", ...
std::string_view Name(DType dtype);
std::optional<DType> DTypeFromName(std::string_view name);
bool IsFloat(DType dtype);    // float64, float32, float16, bfloat16
bool IsInteger(DType dtype);  // signed and unsigned, not bool
// What kernels can hold: everything but complex and kOther.
bool IsFusable(DType dtype);

using Dims = std::vector<int64_t>;

// A tensor's type. Sizes are numbers: a graph with symbolic sizes is specialised before it is compiled.
struct TensorType {
  DType dtype = DType::kFloat32;
  Dims sizes;
  // In elements, one per size. The layout that the traced program gave the value: graph inputs and outputs and the
  // operands and results of extern calls have it in memory; values inside of a kernel have no memory.
  Dims strides;
  // False for what is no plain strided CPU tensor: a host scalar, a sparse tensor, dtype kOther. Sizes and strides
  // then describe nothing, and only extern calls may use the value.
  bool plain = true;

  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t NumElements() const;
  bool operator==(const TensorType&) const = default;
};

// Row-major strides of `sizes`, as torch counts them (a dimension of size 0 or 1 counts as 1).
Dims ContiguousStrides(const Dims& sizes);
TensorType Contiguous(DType dtype, Dims sizes);
bool IsContiguous(const TensorType& type);
// Elements from the first to one past the last that the type touches; 0 when it has no element.
int64_t StorageExtent(const TensorType& type);

// "f32[8,128]" when contiguous, else "f32[8,128]{1,8}".
std::string ToString(const TensorType& type);

}  // namespace stepone::ir

#endif  // STEPONE_COMPILER_IR_TYPES_H_
