// stepone-opt: shows what the compiler's passes make of a graph.
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "compiler/import/import_graph.h"
#include "compiler/ir/text.h"
#include "compiler/ir/verifier.h"
#include "compiler/loops/program.h"
#include "compiler/pipeline.h"
#include "compiler/planning/plan_memory.h"
#include "compiler/tools/print_program.h"
#include "proto/status.h"
#include "proto/str_cat.h"
#include "stepone/v1/compile_service.pb.h"
#include "stepone/v1/graph.pb.h"

namespace stepone {
namespace {

struct Options {
  std::string input = "-";
  std::string format = "text";      // text, graph, request
  std::vector<std::string> passes;  // empty: all of them
  bool only_parse = false;
  bool list_passes = false;
  bool print_after = false;
  bool raw_ids = false;
  bool time = false;
  bool fallback_random = false;
  std::string show = "graph";  // graph, program, kernels, source
  bool disable_fusion = false;
  bool no_in_place = false;
};

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(StrCat("cannot read ", path));
  return std::string(std::istreambuf_iterator<char>(in), {});
}

absl::StatusOr<ir::Graph> ReadGraph(const Options& options) {
  const auto bytes = ReadInput(options.input);
  if (!bytes.ok()) return bytes.status();
  if (options.format == "text") {
    auto graph = ir::Parse(*bytes);
    if (!graph.ok()) return graph.status();
    // A dump from between two passes holds primitives, too.
    if (const auto violation = ir::Verify(*graph, ir::Stage::kDecomposed)) {
      return InvalidNode(violation->node, violation->rule, violation->message);
    }
    return graph;
  }
  v1::CompileRequest request;
  const bool parsed =
      options.format == "request" ? request.ParseFromString(*bytes) : request.mutable_graph()->ParseFromString(*bytes);
  if (!parsed) return absl::InvalidArgumentError(StrCat(options.input, " is no serialised ", options.format));
  return import::ImportGraph(request.graph());
}

absl::StatusOr<std::vector<passes::Pass>> ChosenPasses(const Options& options) {
  std::vector<passes::Pass> chosen;
  if (options.only_parse) return chosen;
  if (options.passes.empty()) return std::vector<passes::Pass>(passes::Pipeline().begin(), passes::Pipeline().end());
  for (const std::string& name : options.passes) {
    const passes::Pass* pass = passes::FindPass(name);
    if (pass == nullptr) return absl::InvalidArgumentError(StrCat("no pass is called ", name, ": see --list-passes"));
    chosen.push_back(*pass);
    // Alone, a pass may meet a graph of either stage.
    chosen.back().stage_after = ir::Stage::kDecomposed;
  }
  return chosen;
}

absl::Status ShowProgram(const ir::Graph& graph, const Options& options) {
  loops::FuseOptions fuse;
  fuse.disable_fusion = options.disable_fusion;
  const auto start = std::chrono::steady_clock::now();
  const loops::Program program = loops::Fuse(graph, fuse);
  if (!program.error.empty()) return absl::InternalError(StrCat("fusion: ", program.error));
  const auto fused = std::chrono::steady_clock::now();
  const planning::MemoryPlan memory = planning::PlanMemory(graph, program, {.in_place = !options.no_in_place});
  if (options.time) {
    using Milliseconds = std::chrono::duration<double, std::milli>;
    std::cerr << "fuse: " << Milliseconds(fused - start).count() << " ms, " << program.steps.size() << " steps\n"
              << "plan_memory: " << Milliseconds(std::chrono::steady_clock::now() - fused).count() << " ms, "
              << program.buffers.size() << " buffers\n";
  }
  const ProgramDetail detail = options.show == "kernels"  ? ProgramDetail::kKernels
                               : options.show == "source" ? ProgramDetail::kSource
                                                          : ProgramDetail::kSteps;
  return PrintProgram(graph, program, memory, detail, codegen::CpuTarget(), std::cout);
}

absl::Status Run(const Options& options) {
  if (options.list_passes) {
    for (const passes::Pass& pass : passes::Pipeline()) std::cout << pass.name << ": " << pass.why_here << "\n";
    return absl::OkStatus();
  }
  auto graph = ReadGraph(options);
  if (!graph.ok()) return graph.status();
  const auto chosen = ChosenPasses(options);
  if (!chosen.ok()) return chosen.status();
  ir::PrintOptions print;
  print.raw_ids = options.raw_ids;
  passes::RunnerOptions runner;
  runner.pass.fallback_random = options.fallback_random;
  runner.check_changed = true;
  if (options.print_after) {
    runner.dump = [&print](std::string_view pass, const ir::Graph& after) {
      std::cout << "# after " << pass << "\n" << ir::Print(after, print) << "\n";
    };
  }
  std::vector<passes::PassRecord> records;
  const absl::Status status = passes::RunPasses(*graph, *chosen, runner, &records);
  if (options.time) {
    for (const passes::PassRecord& record : records) {
      std::cerr << record.name << ": " << record.milliseconds << " ms, " << record.nodes_after << " nodes"
                << (record.changed ? "" : ", unchanged") << "\n";
    }
  }
  if (!status.ok()) return status;
  if (options.show != "graph") return ShowProgram(*graph, options);
  if (!options.print_after) std::cout << ir::Print(*graph, print);
  return absl::OkStatus();
}

}  // namespace
}  // namespace stepone

int main(int argc, char** argv) {
  stepone::Options options;
  CLI::App app(
      "Runs the compiler's passes on a graph and prints what comes out.\n\n"
      "The input is graph text (.tg, see compiler/ir/text.h), or with --format a serialised stepone.v1.Graph or\n"
      "stepone.v1.CompileRequest. Examples:\n\n"
      "  stepone-opt graph.tg                                      the whole pipeline\n"
      "  stepone-opt --passes decompose,canonicalize graph.tg      these two\n"
      "  stepone-opt --print-after --format request crash.pb       the graph after each pass that changed it\n");
  app.add_option("input", options.input, "file to read; - is the standard input")->capture_default_str();
  app.add_option("--format", options.format, "what the input is")
      ->check(CLI::IsMember({"text", "graph", "request"}))
      ->capture_default_str();
  app.add_option("--passes", options.passes, "passes to run, in this order (default: the pipeline)")->delimiter(',');
  app.add_flag("--no-passes", options.only_parse, "only read, check and print");
  app.add_flag("--list-passes", options.list_passes, "print the pipeline's passes and why each stands where it does");
  app.add_flag("--print-after", options.print_after, "print the graph after each pass that changed it");
  app.add_flag("--raw-ids", options.raw_ids, "the graph's own value ids, which stay the same from pass to pass");
  app.add_flag("--time", options.time,
               "milliseconds and nodes of each pass (with --show: and of fusion and planning), to the standard\n"
               "error");
  app.add_flag("--fallback-random", options.fallback_random, "calls that draw random numbers stay calls");
  app.add_option("--show", options.show,
                 "what to print at the end: the graph, the steps it is cut into, those with their\n"
                 "loop nests, or with their C source for a 32-byte vector CPU")
      ->check(CLI::IsMember({"graph", "program", "kernels", "source"}))
      ->capture_default_str();
  app.add_flag("--disable-fusion", options.disable_fusion, "one kernel per op");
  app.add_flag("--no-in-place", options.no_in_place, "no temporary is written in the place of another one");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = stepone::Run(options);
  if (status.ok()) return 0;
  std::cerr << "stepone-opt: " << status.message() << "\n";
  return 1;
}
