// What a pass is, and what is written down about one that ran.
#ifndef STEPONE_COMPILER_PASSES_PASS_H_
#define STEPONE_COMPILER_PASSES_PASS_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/ir/graph.h"
#include "compiler/ir/verifier.h"

namespace stepone::passes {

struct PassOptions {
  // Calls that draw random numbers stay calls, so that they give eager's bits.
  bool fallback_random = false;
};

// One transformation of a graph. `run` returns whether it changed anything. Errors: kInvalidArgument naming the node
// when the request is at fault; anything else is a bug of the pass. A failed pass leaves the graph in no particular
// state.
struct Pass {
  std::string_view name;
  absl::StatusOr<bool> (*run)(ir::Graph& graph, const PassOptions& options);
  ir::Stage stage_after;
  std::string_view why_here;  // in the pipeline, for people
};

// Plain data, for reports.
struct PassRecord {
  std::string name;
  double milliseconds = 0;
  bool changed = false;
  int64_t nodes_after = 0;
};

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_PASS_H_
