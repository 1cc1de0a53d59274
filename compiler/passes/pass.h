// What a pass is.
#ifndef STEPONE_COMPILER_PASSES_PASS_H_
#define STEPONE_COMPILER_PASSES_PASS_H_

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/verifier.h"

namespace stepone::passes {

struct PassOptions {
  // Calls that draw random numbers stay calls, so that they give eager's bits.
  bool fallback_random = false;
};

// One transformation of a graph. `run` returns whether it changed anything. Errors: kInvalidArgument naming the node when
// the request is at fault; anything else is a bug of the pass. A failed pass leaves the graph in no particular state.
struct Pass {
  std::string_view name;
  absl::StatusOr<bool> (*run)(ir::Graph& graph, const PassOptions& options);
  ir::Stage stage_after;
  std::string_view why_here;  // in the pipeline, for people
};

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_PASS_H_
