// Compiles a graph file through the service and runs it on random inputs, without Python: an example of libstepone, and
// a way to see where the time of one graph goes.
//
//   stepone-run-graph GRAPH.pb [RUNS]
//
// Prints the plan with microseconds per step. Where the service is comes from STEPONE_* (client/README.md).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/util/Exception.h>

#include "client/examples/compile_graph_file.h"
#include "client/executable.h"

namespace stepone::client {
namespace {

constexpr int kDefaultRuns = 20;

// A tensor with the buffer's layout: numbers near zero, and zeros for integers, which are right as indices of anything.
at::Tensor RandomTensor(const Buffer& buffer) {
  at::Tensor tensor = at::empty_strided(buffer.sizes, buffer.strides, ToScalarType(buffer.dtype));
  if (at::isFloatingType(tensor.scalar_type()) || at::isComplexType(tensor.scalar_type()))
    return tensor.normal_(0, 0.02);
  return tensor.zero_();
}

std::vector<c10::IValue> RandomInputs(const Plan& plan) {
  std::vector<c10::IValue> inputs;
  for (const InputSpec& spec : plan.inputs) {
    if (spec.kind == InputSpec::Kind::kInt) {
      inputs.emplace_back(spec.int_value);
    } else if (spec.kind == InputSpec::Kind::kHostScalar) {
      inputs.emplace_back(1.0);
    } else if (spec.kind == InputSpec::Kind::kIgnored || plan.buffers[spec.buffer].opaque) {
      inputs.emplace_back();
    } else {
      inputs.emplace_back(RandomTensor(plan.buffers[spec.buffer]));
    }
  }
  return inputs;
}

const char* StepName(const Plan& plan, const Step& step) {
  if (const auto* launch = std::get_if<LaunchStep>(&step)) return plan.kernels[launch->kernel].name.c_str();
  if (const auto* call = std::get_if<CallStep>(&step)) return call->op.c_str();
  const char* const names[] = {"launch", "call", "seed", "free", "copy"};
  return names[step.index()];
}

int RunGraph(const std::string& path, int runs) {
  const absl::StatusOr<ClientConfig> config = ConfigFromEnvironment();
  absl::StatusOr<std::shared_ptr<const Program>> program =
      config.ok() ? CompileGraphFile(path, *config) : config.status();
  if (!program.ok()) {
    std::fprintf(stderr, "%s\n", program.status().ToString().c_str());
    return 1;
  }
  Executable executable(*std::move(program));
  const Plan& plan = executable.plan();
  const std::vector<c10::IValue> inputs = RandomInputs(plan);
  executable.Run(inputs);  // brings memory and threads up
  executable.SetProfiling(true);
  for (int i = 0; i < runs; ++i) executable.Run(inputs);

  const std::vector<Executable::StepProfile> profile = executable.Profile();
  double total_us = 0;
  for (size_t i = 0; i < profile.size(); ++i) {
    const double us = static_cast<double>(profile[i].nanoseconds) * 1e-3 / runs;
    total_us += us;
    std::printf("%5zu %10.1f us  %s\n", i, us, StepName(plan, plan.steps[i]));
  }
  std::printf(
      "%.1f us a run: %lld kernels, %lld ATen calls, arena of %lld bytes, %lld tensors copied for their strides\n",
      total_us, static_cast<long long>(executable.num_launches()), static_cast<long long>(executable.num_calls()),
      static_cast<long long>(plan.arena_bytes), static_cast<long long>(executable.counters().restrided));
  return 0;
}

}  // namespace
}  // namespace stepone::client

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: %s GRAPH.pb [RUNS]\n", argv[0]);
    return 2;
  }
  const int runs = argc == 3 ? std::atoi(argv[2]) : stepone::client::kDefaultRuns;
  try {
    return stepone::client::RunGraph(argv[1], std::max(1, runs));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
