// The text form of a graph (files end in .tg). Parse(Print(g)) prints as Print(g) does; values are renumbered in order
// of appearance unless `raw_ids` asks for the graph's own numbers.
//
//     graph forward                                        # role: forward, backward, joint, inference
//     %0 = input : f32[8,128] "x"                          # the name is optional
//     input 7                                              # an input that is a number
//     %1 = constant 0x0000803f : f32[1]                    # elements as stored, in hexadecimal
//     %2 = expand %1 : f32[8,128]{0,0}                     # strides only where they are not the contiguous ones
//     %3 = mul %0, %2 : f32[8,128] from "mul_1"            # names of the request's nodes behind it
//     %4 = sum %3 {dims=[1]} : f32[8]
//     %5, _ = aten.foo.default(self=%4, n=3, list=[%4, none], dim=[1,2]) {aliases=[0,-1], mutates=[0], rng, list} :
//     f32[8], _ output %5                                            # or a number, or none
//
// Arguments of a call: none, %N, numbers (1 is an integer, 1.0 a float), true, false, "text", a dtype (f32), lists in
// brackets (an empty one says of what: ints[], floats[], bools[], strings[], tensors[]), device("cpu"),
// layout("strided"), memory_format("contiguous_format"), complex(1.0, 2.0). `#` starts a comment.
#ifndef STEPONE_COMPILER_IR_TEXT_H_
#define STEPONE_COMPILER_IR_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"

namespace stepone::ir {

struct PrintOptions {
  bool raw_ids = false;  // the graph's own value ids, which a dump's reader can follow from pass to pass
  bool names = true;     // inputs' names and nodes' sources
};

std::string Print(const Graph& graph, const PrintOptions& options = {});
// One node as Print() writes it with raw ids, without a line end: for error messages.
std::string PrintNode(const Graph& graph, NodeId id);

// kInvalidArgument with the line number and what was expected there. The result is well-formed text only: see
// verifier.h for whether it makes sense.
absl::StatusOr<Graph> Parse(std::string_view text);

}  // namespace stepone::ir

#endif  // STEPONE_COMPILER_IR_TEXT_H_
