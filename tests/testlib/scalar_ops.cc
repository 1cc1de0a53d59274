#include "tests/testlib/scalar_ops.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/ir/scalar.h"

namespace stepone::testlib {

using ir::DType;
using ir::Op;

namespace {

template <typename T>
T Load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
void Save(T value, char* at) {
  std::memcpy(at, &value, sizeof(T));
}

double HalfToDouble(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const double fraction = bits & 1023;
  double value;
  if (exponent == 31) {
    value = fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  } else if (exponent == 0) {
    value = std::ldexp(fraction, -24);
  } else {
    value = std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits >> 15) != 0 ? -value : value;
}

// REQUIRES: `value` is a half's value (or NaN).
uint16_t HalfBits(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7e00;
  value = std::fabs(value);
  if (std::isinf(value)) return sign | 0x7c00;
  if (value < std::ldexp(1, -14)) return sign | static_cast<uint16_t>(std::ldexp(value, 24));
  int exponent;
  const double fraction = std::frexp(value, &exponent);  // in [0.5, 1)
  return sign | static_cast<uint16_t>(((exponent + 14) << 10) + static_cast<int>(std::ldexp(fraction, 11)) - 1024);
}

double RoundHalfEven(double x) {
  const double low = std::floor(x);
  const double rest = x - low;
  if (rest < 0.5 || (rest == 0.5 && std::fmod(low, 2) == 0)) return std::copysign(low, x);
  return std::copysign(low + 1, x);
}

double FloorDiv(double a, double b) {
  if (b == 0) return a / b;
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1;
  return floored;
}

double PythonRemainder(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (b < 0) != (remainder < 0)) remainder += b;
  return remainder;
}

double UnaryReal(Op op, double x) {
  switch (op) {
    case Op::kNeg:
      return -x;
    case Op::kAbs:
      return std::fabs(x);
    case Op::kSign:
      return (x > 0) - (x < 0);
    case Op::kExp:
      return std::exp(x);
    case Op::kExpm1:
      return std::expm1(x);
    case Op::kLog:
      return std::log(x);
    case Op::kLog1p:
      return std::log1p(x);
    case Op::kSqrt:
      return std::sqrt(x);
    case Op::kRsqrt:
      return 1 / std::sqrt(x);
    case Op::kReciprocal:
      return 1 / x;
    case Op::kSin:
      return std::sin(x);
    case Op::kCos:
      return std::cos(x);
    case Op::kTanh:
      return std::tanh(x);
    case Op::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case Op::kErf:
      return std::erf(x);
    case Op::kFloor:
      return std::floor(x);
    case Op::kCeil:
      return std::ceil(x);
    case Op::kRound:
      return RoundHalfEven(x);
    case Op::kTrunc:
      return std::trunc(x);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

double BinaryReal(Op op, double a, double b) {
  switch (op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kFloorDiv:
      return FloorDiv(a, b);
    case Op::kRemainder:
      return PythonRemainder(a, b);
    case Op::kFmod:
      return std::fmod(a, b);
    case Op::kMaximum:
      return std::isnan(a) || std::isnan(b) ? a + b : std::max(a, b);
    case Op::kMinimum:
      return std::isnan(a) || std::isnan(b) ? a + b : std::min(a, b);
    case Op::kFmax:
      return std::fmax(a, b);
    case Op::kFmin:
      return std::fmin(a, b);
    case Op::kPow:
      return std::pow(a, b);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

int64_t UnaryInteger(Op op, DType type, int64_t x) {
  switch (op) {
    case Op::kNeg:
      return static_cast<int64_t>(-static_cast<uint64_t>(x));
    case Op::kAbs:
      return x < 0 ? static_cast<int64_t>(-static_cast<uint64_t>(x)) : x;
    case Op::kSign:
      return (x > 0) - (x < 0);
    case Op::kNot:
      return type == DType::kBool ? x == 0 : ~x;
    default:
      return x;  // floor, ceil, round, trunc of an integer
  }
}

bool BinaryInteger(Op op, int64_t a, int64_t b, int64_t* result) {
  const auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
    case Op::kAdd:
      *result = static_cast<int64_t>(ua + ub);
      return true;
    case Op::kSub:
      *result = static_cast<int64_t>(ua - ub);
      return true;
    case Op::kMul:
      *result = static_cast<int64_t>(ua * ub);
      return true;
    case Op::kMaximum:
    case Op::kFmax:
      *result = std::max(a, b);
      return true;
    case Op::kMinimum:
    case Op::kFmin:
      *result = std::min(a, b);
      return true;
    case Op::kAnd:
      *result = a & b;
      return true;
    case Op::kOr:
      *result = a | b;
      return true;
    case Op::kXor:
      *result = a ^ b;
      return true;
    default:
      break;
  }
  if (b == 0) return false;
  const bool minus_one = b == -1;  // INT64_MIN / -1 traps
  const int64_t quotient = minus_one ? static_cast<int64_t>(-ua) : a / b;
  const int64_t remainder = minus_one ? 0 : a % b;
  const bool adjust = remainder != 0 && (b < 0) != (remainder < 0);
  switch (op) {
    case Op::kFloorDiv:
      *result = quotient - (adjust ? 1 : 0);
      return true;
    case Op::kTruncDiv:
      *result = quotient;
      return true;
    case Op::kRemainder:
      *result = remainder + (adjust ? b : 0);
      return true;
    case Op::kFmod:
      *result = remainder;
      return true;
    default:
      *result = 0;
      return true;
  }
}

template <typename T>
bool Compare(Op op, T a, T b) {
  switch (op) {
    case Op::kEq:
      return a == b;
    case Op::kNe:
      return a != b;
    case Op::kLt:
      return a < b;
    case Op::kLe:
      return a <= b;
    case Op::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

Cell Convert(DType from, DType to, Cell x) {
  Cell result;
  if (ir::IsFloat(to)) {
    result.real = ir::RoundTo(to, ir::IsFloat(from) ? x.real : static_cast<double>(x.integer));
  } else if (to == DType::kBool) {
    result.integer = ir::IsFloat(from) ? x.real != 0 : x.integer != 0;
  } else {
    result.integer = ir::WrapTo(to, ir::IsFloat(from) ? ir::ToInt64(ir::Scalar(x.real)) : x.integer);
  }
  return result;
}

}  // namespace

bool EvaluateScalar(Op op, DType from, DType to, const std::vector<Cell>& args, Cell* result) {
  *result = Cell{};
  const bool real = ir::IsFloat(from);
  switch (op) {
    case Op::kCast:
      *result = Convert(from, to, args[0]);
      return true;
    case Op::kIsNan:
      result->integer = real && std::isnan(args[0].real);
      return true;
    case Op::kWhere:
      *result = args[0].integer != 0 ? args[1] : args[2];
      return true;
    case Op::kEq:
    case Op::kNe:
    case Op::kLt:
    case Op::kLe:
    case Op::kGt:
    case Op::kGe:
      result->integer = real ? Compare(op, args[0].real, args[1].real) : Compare(op, args[0].integer, args[1].integer);
      return true;
    default:
      break;
  }
  if (real) {
    result->real =
        ir::RoundTo(to, args.size() == 1 ? UnaryReal(op, args[0].real) : BinaryReal(op, args[0].real, args[1].real));
    return true;
  }
  int64_t value = 0;
  if (args.size() == 1) {
    value = UnaryInteger(op, from, args[0].integer);
  } else if (!BinaryInteger(op, args[0].integer, args[1].integer, &value)) {
    return false;
  }
  result->integer = ir::WrapTo(to, value);
  return true;
}

Cell ReadCell(DType dtype, const char* at) {
  Cell cell;
  switch (dtype) {
    case DType::kFloat64:
      cell.real = Load<double>(at);
      break;
    case DType::kFloat32:
      cell.real = Load<float>(at);
      break;
    case DType::kFloat16:
      cell.real = HalfToDouble(Load<uint16_t>(at));
      break;
    case DType::kBFloat16:
      cell.real = std::bit_cast<float>(static_cast<uint32_t>(Load<uint16_t>(at)) << 16);
      break;
    case DType::kInt64:
      cell.integer = Load<int64_t>(at);
      break;
    case DType::kInt32:
      cell.integer = Load<int32_t>(at);
      break;
    case DType::kInt16:
      cell.integer = Load<int16_t>(at);
      break;
    case DType::kInt8:
      cell.integer = Load<int8_t>(at);
      break;
    case DType::kUInt8:
      cell.integer = Load<uint8_t>(at);
      break;
    case DType::kBool:
      cell.integer = Load<uint8_t>(at);
      break;
    default:
      break;
  }
  return cell;
}

void WriteCell(DType dtype, const Cell& cell, char* at) {
  switch (dtype) {
    case DType::kFloat64:
      return Save(cell.real, at);
    case DType::kFloat32:
      return Save(static_cast<float>(cell.real), at);
    case DType::kFloat16:
      return Save(HalfBits(ir::RoundTo(dtype, cell.real)), at);
    case DType::kBFloat16: {
      const auto bits = std::bit_cast<uint32_t>(static_cast<float>(ir::RoundTo(dtype, cell.real)));
      return Save(static_cast<uint16_t>(bits >> 16), at);
    }
    case DType::kInt64:
      return Save(cell.integer, at);
    case DType::kInt32:
      return Save(static_cast<int32_t>(cell.integer), at);
    case DType::kInt16:
      return Save(static_cast<int16_t>(cell.integer), at);
    case DType::kInt8:
      return Save(static_cast<int8_t>(cell.integer), at);
    case DType::kUInt8:
      return Save(static_cast<uint8_t>(cell.integer), at);
    case DType::kBool:
      return Save(static_cast<uint8_t>(cell.integer != 0), at);
    default:
      return;
  }
}

}  // namespace stepone::testlib
