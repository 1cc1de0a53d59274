// What happened during a compile, for people: counts, times and decisions. Nothing here changes what the artifact does.
#ifndef STEPONE_COMPILER_COMPILE_REPORT_H_
#define STEPONE_COMPILER_COMPILE_REPORT_H_

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/kernel_builder.h"
#include "compiler/loops/program.h"
#include "compiler/passes/pass.h"
#include "stepone/v1/artifact.pb.h"
#include "stepone/v1/options.pb.h"

namespace stepone::compiler {

// Collects a report while a compile goes on. Not thread-safe.
class ReportBuilder {
 public:
  // `imported`: the graph as the request gave it, before any pass.
  explicit ReportBuilder(const ir::Graph& imported);

  std::vector<passes::PassRecord>& passes() { return passes_; }
  // Called when fusion and memory planning are done: the time since the last pass is theirs.
  void EndOfPlanning();

  // `complete`: with passes, kernels and fusion decisions; otherwise counts and notes only.
  void Fill(const ir::Graph& graph, const loops::Program& program, const BuiltKernels& kernels, v1::Mode mode,
            bool complete, v1::CompileReport& report) const;

 private:
  std::set<std::string> counted_nodes_;  // calls of the request that compute something
  std::vector<passes::PassRecord> passes_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double planning_ms_ = 0;
};

}  // namespace stepone::compiler

#endif  // STEPONE_COMPILER_COMPILE_REPORT_H_
