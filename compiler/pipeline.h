// The passes between import and fusion, as data.
#ifndef STEPONE_COMPILER_PIPELINE_H_
#define STEPONE_COMPILER_PIPELINE_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "compiler/ir/graph.h"
#include "compiler/passes/pass.h"
#include "compiler/passes/pass_runner.h"

namespace stepone::passes {

// All passes, in order, each with why it stands where it does.
absl::Span<const Pass> Pipeline();

// By name; nullptr when there is none.
const Pass* FindPass(std::string_view name);

struct PipelineOptions {
  bool fallback_random = false;  // CodeOptions.fallback_random
  RunnerOptions runner;          // `runner.pass` is filled in from the fields above
};

// Runs Pipeline() on an imported graph, which is then ready for fusion (ir::Stage::kDecomposed). Errors: see RunPasses.
absl::Status RunPipeline(ir::Graph& graph, const PipelineOptions& options, std::vector<PassRecord>* records);

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PIPELINE_H_
