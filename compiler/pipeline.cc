#include "compiler/pipeline.h"

#include "compiler/passes/canonicalize.h"
#include "compiler/passes/decompose.h"
#include "compiler/passes/eliminate_common_subexpressions.h"
#include "compiler/passes/eliminate_dead.h"
#include "compiler/passes/fold_constants.h"

namespace stepone::passes {
namespace {

using ir::Stage;

constexpr Pass kPipeline[] = {
    {"eliminate_dead", EliminateDead, Stage::kImported, "first: what nobody needs should not cost a decomposition"},
    {"decompose", Decompose, Stage::kDecomposed, "all that follows knows primitives only"},
    {"canonicalize", Canonicalize, Stage::kDecomposed,
     "before folding: decompositions leave chains of views and casts, and constants on either side"},
    {"fold_constants", FoldConstants, Stage::kDecomposed,
     "before merging: equal constants are easier to see than equal computations of them"},
    {"eliminate_common_subexpressions", EliminateCommonSubexpressions, Stage::kDecomposed,
     "after canonicalisation, which makes equal things look equal"},
    {"canonicalize_again", Canonicalize, Stage::kDecomposed,
     "folding and merging put new views and casts next to each other"},
    {"eliminate_dead_again", EliminateDead, Stage::kDecomposed,
     "last: fusion counts uses, so only real ones may be left"},
};

}  // namespace

absl::Span<const Pass> Pipeline() { return kPipeline; }

const Pass* FindPass(std::string_view name) {
  for (const Pass& pass : kPipeline) {
    if (pass.name == name) return &pass;
  }
  return nullptr;
}

absl::Status RunPipeline(ir::Graph& graph, const PipelineOptions& options, std::vector<PassRecord>* records) {
  RunnerOptions runner = options.runner;
  runner.pass.fallback_random = options.fallback_random;
  return RunPasses(graph, Pipeline(), runner, records);
}

}  // namespace stepone::passes
