// Arguments of an extern call in the manifest's form.
#ifndef STEPONE_COMPILER_ARGUMENTS_TO_PROTO_H_
#define STEPONE_COMPILER_ARGUMENTS_TO_PROTO_H_

#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/loops/program.h"
#include "stepone/v1/graph.pb.h"

namespace stepone::compiler {

// `operands[i]` is the buffer that holds operand i of the call; values in `to` are buffer indices.
void ArgumentToProto(const ir::Argument& argument, const std::vector<loops::BufferId>& operands, v1::Argument& to);

}  // namespace stepone::compiler

#endif  // STEPONE_COMPILER_ARGUMENTS_TO_PROTO_H_
