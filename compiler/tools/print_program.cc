#include "compiler/tools/print_program.h"

#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

std::string_view NameOf(planning::Home home) {
  switch (home) {
    case planning::Home::kInput:
      return "input";
    case planning::Home::kConstant:
      return "constant";
    case planning::Home::kArena:
      return "arena";
    case planning::Home::kOutput:
      return "output";
    case planning::Home::kExtern:
      return "extern";
    case planning::Home::kView:
      return "view";
  }
  return "?";
}

class Printer {
 public:
  Printer(const ir::Graph& graph, const loops::Program& program, const planning::MemoryPlan& memory, std::ostream& out)
      : graph_(graph), program_(program), memory_(memory), out_(out) {}

  absl::Status Run(ProgramDetail detail, const codegen::CpuTarget& target) {
    out_ << "# " << program_.steps.size() << " steps, arena of " << memory_.arena_bytes << " bytes\n";
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      out_ << i << ": ";
      if (const auto* launch = std::get_if<loops::Launch>(&program_.steps[i])) {
        absl::Status status = PrintLaunch(*launch, detail, target);
        if (!status.ok()) return status;
      } else if (const auto* seed = std::get_if<loops::DrawSeed>(&program_.steps[i])) {
        out_ << "seed -> " << Describe(seed->buffer) << "\n";
      } else {
        PrintCall(std::get<loops::ExternCall>(program_.steps[i]), memory_.out_overload[i]);
      }
    }
    return absl::OkStatus();
  }

 private:
  std::string Describe(loops::BufferId buffer) const {
    if (buffer < 0) return "none";
    const loops::Buffer& b = program_.buffers[buffer];
    const loops::BufferId replaced = memory_.in_place_of[buffer];
    return StrCat("b", buffer, " ", NameOf(memory_.placements[buffer].home), " ", ir::ToString(b.type),
                  replaced < 0 ? "" : StrCat(" in place of b", replaced));
  }

  std::string List(const std::vector<loops::BufferId>& buffers) const {
    std::string text;
    for (loops::BufferId buffer : buffers) text += StrCat(text.empty() ? "" : ", ", Describe(buffer));
    return text;
  }

  absl::Status PrintLaunch(const loops::Launch& launch, ProgramDetail detail, const codegen::CpuTarget& target) {
    out_ << "launch " << launch.kernel.name << "(" << List(launch.buffers) << ") moves " << launch.kernel.bytes_moved
         << " bytes, " << launch.kernel.flops << " flops\n";
    if (detail == ProgramDetail::kKernels) out_ << loops::ToString(launch.kernel) << "\n";
    if (detail != ProgramDetail::kSource) return absl::OkStatus();
    const absl::StatusOr<codegen::CpuSource> source = codegen::GenerateCpu(launch.kernel, target);
    if (!source.ok()) return source.status();
    out_ << "// units " << source->units << ", grain " << source->grain << "\n" << source->text << "\n";
    return absl::OkStatus();
  }

  void PrintCall(const loops::ExternCall& call, const std::string& out_overload) {
    out_ << "call " << (out_overload.empty() ? graph_.node(call.node).call->op : out_overload) << "("
         << List(call.operands) << ") -> " << List(call.results) << "\n";
  }

  const ir::Graph& graph_;
  const loops::Program& program_;
  const planning::MemoryPlan& memory_;
  std::ostream& out_;
};

}  // namespace

absl::Status PrintProgram(const ir::Graph& graph, const loops::Program& program, const planning::MemoryPlan& memory,
                          ProgramDetail detail, const codegen::CpuTarget& target, std::ostream& out) {
  return Printer(graph, program, memory, out).Run(detail, target);
}

}  // namespace stepone
