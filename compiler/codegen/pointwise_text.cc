#include "compiler/codegen/pointwise_text.h"

#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/types.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

using ir::DType;
using ir::Op;
using loops::Inst;

bool IsSmallInteger(DType type) { return type == DType::kInt16 || type == DType::kInt8 || type == DType::kUInt8; }

// Arguments as text of the form that the result has.
class Operands {
 public:
  Operands(const std::vector<Value>& args, bool vector) : args_(args), vector_(vector) {}

  // Argument i in the instruction's own form.
  std::string operator[](size_t i) const { return vector_ ? AsVector(args_[i]) : args_[i].text; }
  // Calls a helper that knows vectors only.
  std::string Call(const std::string& helper, size_t count) const {
    std::string text = helper + "(";
    for (size_t i = 0; i < count; ++i) text += StrCat(i == 0 ? "" : ", ", AsVector(args_[i]));
    return text + (vector_ ? ")" : ")[0]");
  }

 private:
  const std::vector<Value>& args_;
  bool vector_;
};

// A comparison's C operator; empty for other ops.
std::string ComparisonOf(Op op) {
  switch (op) {
    case Op::kEq:
      return "==";
    case Op::kNe:
      return "!=";
    case Op::kLt:
      return "<";
    case Op::kLe:
      return "<=";
    case Op::kGt:
      return ">";
    case Op::kGe:
      return ">=";
    default:
      return "";
  }
}

// Turns the result of a C comparison into a lane mask.
std::string Mask(const std::string& comparison, Reg reg, bool vector) {
  if (!vector) return StrCat("-(", comparison, ")");
  return IsWide(reg) ? StrCat("s1_to(", comparison, ", vi)") : StrCat("(", comparison, ")");
}

std::string Convert(const std::string& x, Reg from, Reg to, bool vector) {
  if (from == to) return x;
  return vector ? StrCat("s1_to(", x, ", ", VectorType(to), ")") : StrCat("(", ScalarType(to), ")", x);
}

std::string CastText(const Value& from, DType to, const std::string& x, bool vector) {
  const Reg source = RegOf(from.type), target = RegOf(to);
  if (to == DType::kBool) return from.type == DType::kBool ? x : Mask(x + " != 0", source, vector);
  std::string value = from.type == DType::kBool ? StrCat("(-", x, ")") : x;
  value = Convert(value, source, target, vector);
  if (from.type == to || from.type == DType::kBool) return value;
  return Narrowed(value, to, vector);
}

const char* MathFunction(Op op) {
  switch (op) {
    case Op::kExp:
      return "s1_exp_";
    case Op::kExpm1:
      return "s1_expm1_";
    case Op::kLog:
      return "s1_log_";
    case Op::kLog1p:
      return "s1_log1p_";
    case Op::kSin:
      return "s1_sin_";
    case Op::kCos:
      return "s1_cos_";
    case Op::kTanh:
      return "s1_tanh_";
    case Op::kSigmoid:
      return "s1_sigmoid_";
    case Op::kErf:
      return "s1_erf_";
    case Op::kPow:
      return "s1_pow_";
    case Op::kFmod:
      return "s1_fmod_";
    case Op::kRemainder:
      return "s1_remainder_";
    case Op::kFloorDiv:
      return "s1_floor_divide_";
    case Op::kFmax:
      return "s1_fmax_";
    case Op::kFmin:
      return "s1_fmin_";
    case Op::kSign:
      return "s1_sign_";
    default:
      return nullptr;
  }
}

const char* RoundingFunction(Op op) {
  switch (op) {
    case Op::kFloor:
      return "floor";
    case Op::kCeil:
      return "ceil";
    case Op::kRound:
      return "roundeven";
    case Op::kTrunc:
      return "trunc";
    case Op::kSqrt:
      return "sqrt";
    default:
      return nullptr;
  }
}

// Exponents for which torch's own pow is a product, a root or a quotient.
std::string PowByConstant(double exponent, const std::string& x, Reg reg) {
  const std::string one = FloatLiteral(1, reg);
  const std::string root = StrCat("__builtin_elementwise_sqrt(", x, ")");
  if (exponent == 2) return StrCat(x, " * ", x);
  if (exponent == 3) return StrCat(x, " * ", x, " * ", x);
  if (exponent == -1) return StrCat(one, " / ", x);
  if (exponent == -2) return StrCat(one, " / (", x, " * ", x, ")");
  if (exponent == 0.5) return root;
  if (exponent == -0.5) return StrCat(one, " / ", root);
  return "";
}

// Empty: no code for this op.
std::string FloatText(const Inst& inst, const std::vector<Value>& args, const Operands& operands, bool vector) {
  const Reg reg = RegOf(inst.type);
  const std::string a = operands[0], b = args.size() > 1 ? operands[1] : "";
  switch (inst.op) {
    case Op::kNeg:
      return "-" + a;
    case Op::kAbs:
      return StrCat("__builtin_elementwise_abs(", a, ")");
    case Op::kAdd:
      return StrCat(a, " + ", b);
    case Op::kSub:
      return StrCat(a, " - ", b);
    case Op::kMul:
      return StrCat(a, " * ", b);
    case Op::kDiv:
      return StrCat(a, " / ", b);
    case Op::kReciprocal:
      return StrCat(FloatLiteral(1, reg), " / ", a);
    case Op::kRsqrt:
      return StrCat(FloatLiteral(1, reg), " / __builtin_elementwise_sqrt(", a, ")");
    case Op::kMaximum:
      return operands.Call(StrCat("s1_max_", Suffix(reg)), 2);
    case Op::kMinimum:
      return operands.Call(StrCat("s1_min_", Suffix(reg)), 2);
    case Op::kTruncDiv:
      return StrCat("__builtin_elementwise_trunc(", a, " / ", b, ")");
    case Op::kPow:
      if (args[1].constant != nullptr) {
        std::string text = PowByConstant(args[1].constant->number, a, reg);
        if (!text.empty()) return text;
      }
      break;
    default:
      break;
  }
  if (const char* name = RoundingFunction(inst.op)) return StrCat("__builtin_elementwise_", name, "(", a, ")");
  if (const char* name = MathFunction(inst.op)) return operands.Call(StrCat(name, Suffix(reg)), args.size());
  return "";
}

// Quotient towards zero, remainder and so on; writes the check for zero.
std::string IntegerDivision(const Inst& inst, const std::vector<Value>& args, bool vector, const std::string& active,
                            TextWriter& out) {
  const Reg reg = RegOf(inst.type);
  const std::string k = Suffix(reg), a = AsVector(args[0]), b = AsVector(args[1]);
  const bool known = args[1].constant != nullptr && args[1].constant->integer != 0 && args[1].constant->integer != -1;
  if (!known) {
    if (!args[1].vector) {
      out.Line("if (", args[1].text, " == 0) return 2;");
    } else {
      const std::string zero = Mask(args[1].text + " == 0", reg, true);
      out.Line("if (s1_any(", zero, active.empty() ? "" : " & " + active, ")) return 2;");
    }
  }
  const std::string q = known ? StrCat("(", a, " / ", b, ")") : StrCat("s1_divide_", k, "(", a, ", ", b, ")");
  std::string text;
  switch (inst.op) {
    case Op::kTruncDiv:
      text = q;
      break;
    case Op::kFmod:
      text = StrCat("s1_trunc_rem_", k, "(", a, ", ", b, ", ", q, ")");
      break;
    case Op::kFloorDiv:
      text = StrCat("s1_floor_quot_", k, "(", a, ", ", b, ", ", q, ")");
      break;
    default:
      text = StrCat("s1_floor_rem_", k, "(", a, ", ", b, ", ", q, ")");
      break;
  }
  return vector ? text : text + "[0]";
}

std::string BoolText(Op op, const Operands& operands) {
  const std::string a = operands[0];
  switch (op) {
    case Op::kNot:
      return "~" + a;
    case Op::kAnd:
    case Op::kMul:
    case Op::kMinimum:
    case Op::kFmin:
      return StrCat(a, " & ", operands[1]);
    case Op::kOr:
    case Op::kAdd:
    case Op::kMaximum:
    case Op::kFmax:
      return StrCat(a, " | ", operands[1]);
    case Op::kXor:
    case Op::kSub:
      return StrCat(a, " ^ ", operands[1]);
    case Op::kAbs:
    case Op::kSign:
      return a;
    default:
      return "";
  }
}

std::string IntegerText(const Inst& inst, const std::vector<Value>& args, const Operands& operands, bool vector,
                        const std::string& active, TextWriter& out) {
  const Reg reg = RegOf(inst.type);
  const std::string a = operands[0], b = args.size() > 1 ? operands[1] : "";
  switch (inst.op) {
    case Op::kNeg:
      return "-" + a;
    case Op::kAbs:
      return StrCat("(", a, " < 0 ? -", a, " : ", a, ")");
    case Op::kSign:
      return vector ? StrCat("(", a, " < 0) - (", a, " > 0)") : StrCat("(", a, " > 0) - (", a, " < 0)");
    case Op::kNot:
      return "~" + a;
    case Op::kAdd:
      return StrCat(a, " + ", b);
    case Op::kSub:
      return StrCat(a, " - ", b);
    case Op::kMul:
      return StrCat(a, " * ", b);
    case Op::kAnd:
      return StrCat(a, " & ", b);
    case Op::kOr:
      return StrCat(a, " | ", b);
    case Op::kXor:
      return StrCat(a, " ^ ", b);
    case Op::kMaximum:
    case Op::kFmax:
      return StrCat("(", a, " > ", b, " ? ", a, " : ", b, ")");
    case Op::kMinimum:
    case Op::kFmin:
      return StrCat("(", a, " < ", b, " ? ", a, " : ", b, ")");
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
      return a;
    case Op::kFloorDiv:
    case Op::kTruncDiv:
    case Op::kRemainder:
    case Op::kFmod:
      return IntegerDivision(inst, args, vector, active, out);
    default:
      return "";
  }
  (void)reg;
}

// Results that are values of the operands' dtype anyway.
bool IsExact(Op op) {
  switch (op) {
    case Op::kNeg:
    case Op::kAbs:
    case Op::kMaximum:
    case Op::kMinimum:
    case Op::kFmax:
    case Op::kFmin:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
    case Op::kSign:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string AsVector(const Value& value) {
  return value.vector ? value.text : StrCat("(", VectorType(RegOf(value.type)), ")", value.text);
}

std::string FloatLiteral(double number, Reg reg) {
  const bool wide = reg == Reg::kF64;
  if (!wide) number = static_cast<float>(number);
  if (std::isnan(number)) return wide ? "__builtin_nan(\"\")" : "__builtin_nanf(\"\")";
  std::string text;
  if (std::isinf(number)) {
    text = wide ? "__builtin_inf()" : "__builtin_inff()";
    return number < 0 ? StrCat("(-", text, ")") : text;
  }
  char digits[64];
  std::snprintf(digits, sizeof digits, "%a", number);
  text = StrCat(digits, wide ? "" : "f");
  return std::signbit(number) ? StrCat("(", text, ")") : text;
}

std::string Literal(const Inst& constant) {
  const Reg reg = RegOf(constant.type);
  if (IsFloat(reg)) return FloatLiteral(constant.number, reg);
  if (constant.type == DType::kBool) return constant.integer != 0 ? "(-1)" : "0";
  int64_t value = constant.integer;
  if (reg == Reg::kI32) {
    switch (constant.type) {
      case DType::kInt16:
        value = static_cast<int16_t>(value);
        break;
      case DType::kInt8:
        value = static_cast<int8_t>(value);
        break;
      case DType::kUInt8:
        value = static_cast<uint8_t>(value);
        break;
      default:
        value = static_cast<int32_t>(value);
        break;
    }
    return value < 0 ? StrCat("(int)(", value, ")") : StrCat(value);
  }
  if (value == std::numeric_limits<int64_t>::min()) return "(-0x7fffffffffffffffL - 1)";
  return value < 0 ? StrCat("(", value, "L)") : StrCat(value, "L");
}

std::string Narrowed(const std::string& x, DType type, bool vector) {
  switch (type) {
    case DType::kBFloat16:
    case DType::kFloat16: {
      const char* round = type == DType::kBFloat16 ? "s1_round_bf16" : "s1_round_f16";
      return vector ? StrCat(round, "(", x, ")") : StrCat(round, "((vf)(", x, "))[0]");
    }
    case DType::kInt16:
      return StrCat("((", x, ") << 16) >> 16");
    case DType::kInt8:
      return StrCat("((", x, ") << 24) >> 24");
    case DType::kUInt8:
      return StrCat("(", x, ") & 255");
    default:
      return x;
  }
}

absl::StatusOr<std::string> PointwiseText(const Inst& inst, const std::vector<Value>& args, bool vector,
                                          const std::string& active, TextWriter& out) {
  const Operands operands(args, vector);
  if (inst.op == Op::kCast) return CastText(args[0], inst.type, operands[0], vector);
  if (inst.op == Op::kIsNan) {
    const Reg reg = RegOf(args[0].type);
    return IsFloat(reg) ? Mask(StrCat(operands[0], " != ", operands[0]), reg, vector) : vector ? "(vi)0" : "0";
  }
  if (std::string comparison = ComparisonOf(inst.op); !comparison.empty()) {
    const bool swap = args[0].type == DType::kBool;  // true is -1, the smaller one
    return Mask(StrCat(operands[swap ? 1 : 0], " ", comparison, " ", operands[swap ? 0 : 1]), RegOf(args[0].type),
                vector);
  }
  if (inst.op == Op::kWhere) {
    if (!vector) return StrCat(operands[0], " ? ", operands[1], " : ", operands[2]);
    const std::string mask = AsVector(args[0]);
    return StrCat(IsWide(RegOf(inst.type)) ? StrCat("s1_wide(", mask, ")") : mask, " ? ", operands[1], " : ",
                  operands[2]);
  }
  std::string text;
  if (inst.type == DType::kBool) {
    text = BoolText(inst.op, operands);
  } else if (ir::IsFloat(inst.type)) {
    text = FloatText(inst, args, operands, vector);
    if (!text.empty() && !IsExact(inst.op)) text = Narrowed(text, inst.type, vector);
  } else {
    text = IntegerText(inst, args, operands, vector, active, out);
    if (!text.empty() && IsSmallInteger(inst.type)) text = Narrowed(text, inst.type, vector);
  }
  if (text.empty()) {
    return absl::UnimplementedError(StrCat("no code for ", ir::Name(inst.op), " on ", ir::Name(inst.type)));
  }
  return text;
}

}  // namespace stepone::codegen
