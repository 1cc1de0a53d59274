// Runs passes, and everything around one: verification, timing, dumps, and the name of the one that failed.
#ifndef STEPONE_COMPILER_PASSES_PASS_RUNNER_H_
#define STEPONE_COMPILER_PASSES_PASS_RUNNER_H_

#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/passes/pass.h"

namespace stepone::passes {

struct RunnerOptions {
  PassOptions pass;
  // Compares what a pass says about having changed the graph with its structural hash. Costs a print of the graph per
  // pass: on in tests and tools, and in builds with assertions.
#ifdef NDEBUG
  bool check_changed = false;
#else
  bool check_changed = true;
#endif
  // Called after each pass that changed the graph.
  std::function<void(std::string_view pass, const ir::Graph& graph)> dump;
};

// Runs `passes` in order and verifies the graph after each. `records` may be null.
// Errors: those of a pass, with the pass's name in the detail; kInternal naming the pass when the graph it leaves is
// broken or when it was wrong about `changed`.
absl::Status RunPasses(ir::Graph& graph, absl::Span<const Pass> passes, const RunnerOptions& options,
                       std::vector<PassRecord>* records);

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_PASS_RUNNER_H_
