// Checks that a graph obeys its rules: what a request or a pass can break.
#ifndef STEPONE_COMPILER_IR_VERIFIER_H_
#define STEPONE_COMPILER_IR_VERIFIER_H_

#include <optional>
#include <string>

#include "compiler/ir/graph.h"

namespace stepone::ir {

enum class Stage {
  kImported,    // calls only
  kDecomposed,  // primitives, and the calls that stay
};

struct Violation {
  std::string node;     // name of the request's node, or the node's text when it has none, or "output 3"
  std::string rule;     // a short word, as in proto/stepone/v1/error.proto
  std::string message;  // what is wrong, with the node's text
};

// Checks, at both stages: ids in range, every value defined once and before its use, calls' arguments name the operands
// in order, types sane (as many strides as sizes, none negative), constants' bytes, outputs defined.
// At kDecomposed also, per primitive: number of operands, attributes there and of their kind and range, dtypes and
// sizes of operands and result, no 16-bit float arithmetic, only fusable and plain values. Nothing when all is well,
// else the first violation. That ids are dense holds by construction.
std::optional<Violation> Verify(const Graph& graph, Stage stage);

}  // namespace stepone::ir

#endif  // STEPONE_COMPILER_IR_VERIFIER_H_
