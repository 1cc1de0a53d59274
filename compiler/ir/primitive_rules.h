// The type rules of primitive ops, one by one. Part of the verifier.
#ifndef STEPONE_COMPILER_IR_PRIMITIVE_RULES_H_
#define STEPONE_COMPILER_IR_PRIMITIVE_RULES_H_

#include <string>
#include <string_view>

#include "compiler/ir/graph.h"

namespace stepone::ir {

struct PrimitiveFault {
  std::string_view rule;  // empty: none
  std::string message;
};

// REQUIRES: node.op is not kAten; operand and result ids are in range.
PrimitiveFault CheckPrimitive(const Graph& graph, const Node& node);

}  // namespace stepone::ir

#endif  // STEPONE_COMPILER_IR_PRIMITIVE_RULES_H_
