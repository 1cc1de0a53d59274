// C expressions for pointwise instructions, on vectors and on single values.
#ifndef STEPONE_COMPILER_CODEGEN_POINTWISE_TEXT_H_
#define STEPONE_COMPILER_CODEGEN_POINTWISE_TEXT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/lanes.h"
#include "compiler/codegen/text_writer.h"
#include "compiler/loops/kernel.h"

namespace stepone::codegen {

// The value of an instruction in the text: a name or a literal.
struct Value {
  std::string text;
  ir::DType type = ir::DType::kFloat32;
  bool vector = false;
  const loops::Inst* constant = nullptr;  // set for a kConstant
};

// `value` as a vector: single values are repeated.
std::string AsVector(const Value& value);

// A literal of a kConstant, or of a number in a register class.
std::string Literal(const loops::Inst& constant);
std::string FloatLiteral(double number, Reg reg);

// `x`, a result of arithmetic, brought to what `type` can hold: rounded or wrapped. `vector`: x is one.
std::string Narrowed(const std::string& x, ir::DType type, bool vector);

// The expression of a kScalar instruction. Checks that its result needs (division by zero, in the lanes of `active`, a
// mask; empty: all) are written to `out` before. kUnimplemented for an op that has no code for its dtype.
absl::StatusOr<std::string> PointwiseText(const loops::Inst& inst, const std::vector<Value>& args, bool vector,
                                          const std::string& active, TextWriter& out);

}  // namespace stepone::codegen

#endif  // STEPONE_COMPILER_CODEGEN_POINTWISE_TEXT_H_
