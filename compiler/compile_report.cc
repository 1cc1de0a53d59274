#include "compiler/compile_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <utility>
#include <variant>

#include "proto/str_cat.h"

namespace stepone::compiler {
namespace {

// Calls that only rename positions or storage: they cost nothing in eager mode either and would flatter the share.
bool IsView(std::string_view op) {
  static constexpr std::array<std::string_view, 19> kViews = {"aten.view.default",
                                                              "aten._unsafe_view.default",
                                                              "aten.t.default",
                                                              "aten.transpose.int",
                                                              "aten.permute.default",
                                                              "aten.expand.default",
                                                              "aten.slice.Tensor",
                                                              "aten.select.int",
                                                              "aten.unsqueeze.default",
                                                              "aten.squeeze.dim",
                                                              "aten.squeeze.default",
                                                              "aten.squeeze.dims",
                                                              "aten.detach.default",
                                                              "aten.alias.default",
                                                              "aten.as_strided.default",
                                                              "aten.split.Tensor",
                                                              "aten.unbind.int",
                                                              "aten.reshape.default",
                                                              "aten.split_with_sizes.default"};
  return std::find(kViews.begin(), kViews.end(), op) != kViews.end();
}

int64_t Bytes(const ir::TensorType& type) { return type.plain ? type.NumElements() * ir::ByteSize(type.dtype) : 0; }

void AddKernels(const loops::Program& program, const BuiltKernels& kernels, v1::CompileReport& report) {
  std::set<int32_t> seen;
  for (size_t step = 0; step < program.steps.size(); ++step) {
    const int32_t index = kernels.kernel_of_step[step];
    if (index < 0) continue;
    const BuiltKernel& built = kernels.kernels[index];
    const bool first = seen.insert(index).second;
    v1::KernelRecord& record = *report.add_kernels();
    record.set_name(std::get<loops::Launch>(program.steps[step]).kernel.name);
    record.set_reused(built.reused || !first);
    if (!first) continue;
    record.set_codegen_ms(built.codegen_ms);
    record.set_compile_ms(built.compile_ms);
    record.set_link_ms(built.link_ms);
  }
}

void AddNotes(v1::Mode mode, v1::CompileReport& report) {
  switch (mode) {
    case v1::MODE_REDUCE_OVERHEAD:
      report.add_notes(
          "mode reduce-overhead: same code as default; on a CPU the plan already runs without Python or allocator "
          "calls "
          "between kernels, and there is no device graph to record");
      break;
    case v1::MODE_MAX_AUTOTUNE:
    case v1::MODE_MAX_AUTOTUNE_NO_CUDAGRAPHS:
      report.add_notes(
          "mode max-autotune: same code as default; schedules come from the cost model, nothing is measured yet");
      break;
    default:
      break;
  }
}

}  // namespace

ReportBuilder::ReportBuilder(const ir::Graph& imported) {
  for (ir::NodeId id : imported.order()) {
    const ir::Node& node = imported.node(id);
    if (node.call == nullptr || IsView(node.call->op)) continue;
    counted_nodes_.insert(node.sources.begin(), node.sources.end());
  }
}

void ReportBuilder::EndOfPlanning() {
  planning_ms_ = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
  for (const passes::PassRecord& pass : passes_) planning_ms_ -= pass.milliseconds;
}

void ReportBuilder::Fill(const ir::Graph& graph, const loops::Program& program, const BuiltKernels& kernels,
                         v1::Mode mode, bool complete, v1::CompileReport& report) const {
  std::set<std::string> called;
  std::map<std::string, int> externs;
  int64_t fused_bytes = 0;
  int64_t extern_bytes = 0;
  for (const loops::Step& step : program.steps) {
    if (const auto* launch = std::get_if<loops::Launch>(&step)) {
      fused_bytes += launch->kernel.bytes_moved;
    } else if (const auto* call = std::get_if<loops::ExternCall>(&step)) {
      const ir::Node& node = graph.node(call->node);
      ++externs[node.call->op];
      called.insert(node.sources.begin(), node.sources.end());
      for (ir::ValueId v : node.operands) extern_bytes += Bytes(graph.type(v));
      for (ir::ValueId v : node.results) extern_bytes += v == ir::kNoValue ? 0 : Bytes(graph.type(v));
    }
  }
  report.set_graph_ops(counted_nodes_.size());
  // What is left of an op need not bear its name: equal ones become one, others fold into their neighbours.
  report.set_fused_ops(std::count_if(counted_nodes_.begin(), counted_nodes_.end(),
                                     [&](const std::string& name) { return !called.contains(name); }));
  report.set_bytes_moved(fused_bytes + extern_bytes);
  report.set_fused_bytes_moved(fused_bytes);
  std::vector<std::pair<std::string, int>> by_count(externs.begin(), externs.end());
  std::stable_sort(by_count.begin(), by_count.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [op, count] : by_count) report.add_extern_ops(StrCat(op, " x ", count));
  AddNotes(mode, report);
  if (!complete) return;
  for (const passes::PassRecord& pass : passes_) {
    v1::PassRecord& record = *report.add_passes();
    record.set_name(pass.name);
    record.set_milliseconds(pass.milliseconds);
    record.set_changed(pass.changed);
    record.set_nodes_after(pass.nodes_after);
  }
  v1::PassRecord& planning = *report.add_passes();
  planning.set_name("fuse_and_plan");
  planning.set_milliseconds(planning_ms_);
  planning.set_changed(true);
  planning.set_nodes_after(static_cast<int64_t>(program.steps.size()));
  AddKernels(program, kernels, report);
  for (const loops::FusionDecision& decision : program.decisions) {
    v1::FusionRecord& record = *report.add_fusions();
    record.set_first(decision.first);
    record.set_second(decision.second);
    record.set_score_bytes(decision.score_bytes);
    record.set_taken(decision.taken);
    record.set_reason(decision.reason);
  }
}

}  // namespace stepone::compiler
