#include "compiler/compile.h"

#include <chrono>
#include <ctime>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compiler/compile_report.h"
#include "compiler/import/import_graph.h"
#include "compiler/kernel_builder.h"
#include "compiler/loops/program.h"
#include "compiler/package.h"
#include "compiler/pipeline.h"
#include "compiler/planning/plan_memory.h"
#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::compiler {
namespace {

constexpr std::string_view kBackend = "stepone";
constexpr std::string_view kDeviceType = "cpu";

double ProcessCpuMilliseconds() { return 1000.0 * static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

absl::Status Unavailable(std::string_view what, std::string_view asked, std::string_view known) {
  v1::ErrorDetail detail;
  detail.set_rule(std::string("unknown-") + std::string(what));
  detail.add_known_values(std::string(known));
  return WithDetail(
      absl::UnimplementedError(StrCat("this compiler has no ", what, " \"", asked, "\"; it has: ", known)),
      std::move(detail));
}

absl::Status CheckOffered(const CompileInput& input) {
  if (input.options.backend() != kBackend) return Unavailable("backend", input.options.backend(), kBackend);
  if (input.target.device_type() != kDeviceType) {
    return Unavailable("device-type", input.target.device_type(), kDeviceType);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompileResult> Compile(const CompileInput& input, KernelCache& kernels, CompileObserver& observer) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = ProcessCpuMilliseconds();
  absl::Status offered = CheckOffered(input);
  if (!offered.ok()) return offered;

  observer.OnStage("import", 0, 0);
  absl::StatusOr<ir::Graph> graph = import::ImportGraph(*input.graph);
  if (!graph.ok()) return graph.status();

  observer.OnStage("passes", 0, 0);
  ReportBuilder report(*graph);
  passes::PipelineOptions pipeline;
  pipeline.fallback_random = input.options.fallback_random();
  absl::Status status = passes::RunPipeline(*graph, pipeline, &report.passes());
  if (!status.ok()) return status;
  if (observer.Cancelled()) return absl::CancelledError("nobody waits for the compile any more");

  observer.OnStage("fuse", 0, 0);
  loops::FuseOptions fuse;
  fuse.disable_fusion = input.options.disable_fusion();
  if (input.target.l1d_bytes() > 0) fuse.l1d_bytes = input.target.l1d_bytes();
  if (input.target.l2_bytes() > 0) fuse.l2_bytes = input.target.l2_bytes();
  if (input.target.vector_bytes() > 0) fuse.vector_bytes = input.target.vector_bytes();
  const loops::Program program = loops::Fuse(*graph, fuse);
  if (!program.error.empty()) return absl::InternalError(StrCat("fusion: ", program.error));
  const planning::MemoryPlan memory = planning::PlanMemory(*graph, program);
  report.EndOfPlanning();

  absl::StatusOr<BuiltKernels> built = BuildKernels(program, input.target, input.threads, kernels, observer);
  if (!built.ok()) return built.status();

  observer.OnStage("package", static_cast<int>(built->kernels.size()), static_cast<int>(built->kernels.size()));
  CompileResult result = Package(*graph, program, memory, *built);
  result.manifest.set_compiler_fingerprint(Fingerprint());
  *result.manifest.mutable_target() = input.target;
  *result.manifest.mutable_code_options() = input.options;
  report.Fill(*graph, program, *built, input.options.mode(), input.report, *result.manifest.mutable_report());
  result.manifest.mutable_report()->set_cpu_ms(ProcessCpuMilliseconds() - cpu_start);
  result.manifest.mutable_report()->set_total_ms(
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  return result;
}

}  // namespace stepone::compiler
