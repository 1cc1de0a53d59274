#include "compiler/passes/pass_runner.h"

#include <chrono>
#include <string>
#include <utility>

#include "compiler/ir/structural_hash.h"
#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::passes {
namespace {

absl::Status Named(const absl::Status& status, const Pass& pass) {
  v1::ErrorDetail detail = ToErrorDetail(status);
  detail.set_pass(std::string(pass.name));
  return WithDetail(status, std::move(detail));
}

absl::Status Broken(const Pass& pass, std::string_view node, std::string_view rule, std::string_view message) {
  v1::ErrorDetail detail;
  detail.set_pass(std::string(pass.name));
  detail.set_node(std::string(node));
  detail.set_rule(std::string(rule));
  return WithDetail(absl::InternalError(StrCat("after pass ", pass.name, " (", rule, "): ", message)),
                    std::move(detail));
}

absl::Status RunOne(ir::Graph& graph, const Pass& pass, const RunnerOptions& options, PassRecord& record) {
  const uint64_t before = options.check_changed ? ir::StructuralHash(graph) : 0;
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<bool> changed = pass.run(graph, options.pass);
  record.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  record.name = std::string(pass.name);
  if (!changed.ok()) return Named(changed.status(), pass);
  record.changed = *changed;
  record.nodes_after = static_cast<int64_t>(graph.order().size());
  if (const auto violation = ir::Verify(graph, pass.stage_after)) {
    return Broken(pass, violation->node, violation->rule, violation->message);
  }
  if (options.check_changed && *changed != (ir::StructuralHash(graph) != before)) {
    return Broken(
        pass, "", "changed",
        *changed ? "it says that it changed the graph, but did not" : "it changed the graph, but says that it did not");
  }
  if (*changed && options.dump) options.dump(pass.name, graph);
  return absl::OkStatus();
}

}  // namespace

absl::Status RunPasses(ir::Graph& graph, absl::Span<const Pass> passes, const RunnerOptions& options,
                       std::vector<PassRecord>* records) {
  for (const Pass& pass : passes) {
    PassRecord record;
    const absl::Status status = RunOne(graph, pass, options, record);
    if (records != nullptr) records->push_back(std::move(record));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace stepone::passes
