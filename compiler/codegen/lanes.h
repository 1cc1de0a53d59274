// How values of each dtype are held in generated code: in registers of four classes, one lane per element.
#ifndef STEPONE_COMPILER_CODEGEN_LANES_H_
#define STEPONE_COMPILER_CODEGEN_LANES_H_

#include <cstdint>

#include "compiler/ir/types.h"

namespace stepone::codegen {

// bfloat16 and float16 values are held as the float32 of the same value; integers of less than 32 bits as the int32 of
// the same value; bool as an int32 mask, 0 or -1.
enum class Reg : uint8_t { kF32, kF64, kI32, kI64 };

inline Reg RegOf(ir::DType type) {
  switch (type) {
    case ir::DType::kFloat32:
    case ir::DType::kFloat16:
    case ir::DType::kBFloat16:
      return Reg::kF32;
    case ir::DType::kFloat64:
      return Reg::kF64;
    case ir::DType::kInt64:
      return Reg::kI64;
    default:
      return Reg::kI32;
  }
}

inline bool IsFloat(Reg reg) { return reg == Reg::kF32 || reg == Reg::kF64; }
inline bool IsWide(Reg reg) { return reg == Reg::kF64 || reg == Reg::kI64; }

// Names in the text: the vector of W lanes, one lane, and the suffix of helper functions.
inline const char* VectorType(Reg reg) {
  constexpr const char* kNames[] = {"vf", "vd", "vi", "vl"};
  return kNames[static_cast<int>(reg)];
}
inline const char* ScalarType(Reg reg) {
  constexpr const char* kNames[] = {"float", "double", "int", "long"};
  return kNames[static_cast<int>(reg)];
}
inline const char* Suffix(Reg reg) {
  constexpr const char* kNames[] = {"f", "d", "i", "l"};
  return kNames[static_cast<int>(reg)];
}

// Type of an element in memory.
inline const char* StorageType(ir::DType type) {
  switch (type) {
    case ir::DType::kFloat64:
      return "double";
    case ir::DType::kFloat32:
      return "float";
    case ir::DType::kFloat16:
      return "_Float16";
    case ir::DType::kBFloat16:
      return "unsigned short";
    case ir::DType::kInt64:
      return "long";
    case ir::DType::kInt32:
      return "int";
    case ir::DType::kInt16:
      return "short";
    case ir::DType::kInt8:
      return "signed char";
    default:
      return "unsigned char";
  }
}

}  // namespace stepone::codegen

#endif  // STEPONE_COMPILER_CODEGEN_LANES_H_
