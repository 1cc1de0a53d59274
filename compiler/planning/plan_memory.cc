#include "compiler/planning/plan_memory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace stepone::planning {
namespace {

using loops::Buffer;
using loops::BufferId;

constexpr int32_t kNever = -1;
constexpr int32_t kForever = std::numeric_limits<int32_t>::max();

int64_t RoundUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Steps between which a root buffer must keep its contents.
struct Life {
  int32_t first = kForever;
  int32_t last = kNever;
  bool escapes = false;

  bool Meets(const Life& other) const { return first <= other.last && other.first <= last; }
};

class Planner {
 public:
  Planner(const ir::Graph& graph, const loops::Program& program)
      : graph_(graph), program_(program), lives_(program.buffers.size()), shares_(program.buffers.size()) {}

  MemoryPlan Plan() {
    plan_.placements.resize(program_.buffers.size());
    plan_.free_after.resize(program_.steps.size());
    plan_.out_overload.resize(program_.steps.size());
    for (size_t step = 0; step < program_.steps.size(); ++step) {
      Visit(static_cast<int32_t>(step));
    }
    for (const loops::ProgramOutput& output : program_.outputs) {
      if (output.buffer >= 0) Escape(RootOf(program_, output.buffer));
    }
    PropagateSharing();
    Place();
    FreeExterns();
    return std::move(plan_);
  }

 private:
  void Touch(BufferId buffer, int32_t step) {
    Life& life = lives_[RootOf(program_, buffer)];
    life.first = std::min(life.first, step);
    life.last = std::max(life.last, step);
  }

  void Escape(BufferId root) { lives_[root].escapes = true; }

  void Visit(int32_t step) {
    const loops::Step& what = program_.steps[step];
    if (const auto* launch = std::get_if<loops::Launch>(&what)) {
      for (BufferId buffer : launch->buffers) Touch(buffer, step);
    } else if (const auto* seed = std::get_if<loops::DrawSeed>(&what)) {
      Touch(seed->buffer, step);
    } else {
      VisitCall(std::get<loops::ExternCall>(what), step);
    }
  }

  void VisitCall(const loops::ExternCall& call, int32_t step) {
    for (BufferId buffer : call.operands) {
      if (buffer >= 0) Touch(buffer, step);
    }
    const ir::Call& target = *graph_.node(call.node).call;
    for (size_t i = 0; i < call.results.size(); ++i) {
      if (call.results[i] < 0) continue;
      Touch(call.results[i], step);
      const int32_t alias = i < target.result_aliases.size() ? target.result_aliases[i] : -1;
      if (alias >= 0 && call.operands[alias] >= 0) {
        shares_[RootOf(program_, call.results[i])].push_back(RootOf(program_, call.operands[alias]));
      }
    }
    if (WritesInPlace(call)) plan_.out_overload[step] = OutOverload(target.op);
  }

  // An out= overload needs one dense result of ours; the dispatcher then neither allocates nor copies.
  bool WritesInPlace(const loops::ExternCall& call) const {
    if (call.results.size() != 1 || call.results[0] < 0) return false;
    const Buffer& result = program_.buffers[call.results[0]];
    return !OutOverload(graph_.node(call.node).call->op).empty() && result.kind == Buffer::Kind::kExtern &&
           result.type.plain && ir::IsContiguous(result.type);
  }

  // A buffer lives as long as whatever may share its storage. Results come after their operands, so one pass from the
  // last buffer to be produced to the first would do if ids were in order; they need not be, so repeat until stable.
  void PropagateSharing() {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t result = 0; result < shares_.size(); ++result) {
        for (BufferId operand : shares_[result]) {
          const Life& from = lives_[result];
          Life& to = lives_[operand];
          const bool grows = from.last > to.last || (from.escapes && !to.escapes);
          to.last = std::max(to.last, from.last);
          to.escapes = to.escapes || from.escapes;
          changed = changed || grows;
        }
      }
    }
  }

  bool OursToPlace(BufferId buffer) const {
    return program_.buffers[buffer].kind == Buffer::Kind::kTemporary || direct_result_[buffer];
  }

  void Place() {
    direct_result_.assign(program_.buffers.size(), false);
    for (size_t step = 0; step < program_.steps.size(); ++step) {
      if (plan_.out_overload[step].empty()) continue;
      direct_result_[std::get<loops::ExternCall>(program_.steps[step]).results[0]] = true;
    }
    std::vector<BufferId> in_arena;
    for (BufferId b = 0; b < static_cast<BufferId>(program_.buffers.size()); ++b) {
      Placement& placement = plan_.placements[b];
      switch (program_.buffers[b].kind) {
        case Buffer::Kind::kInput:
          placement.home = Home::kInput;
          break;
        case Buffer::Kind::kConstant:
          placement.home = Home::kConstant;
          break;
        case Buffer::Kind::kView:
          placement.home = Home::kView;
          break;
        case Buffer::Kind::kTemporary:
        case Buffer::Kind::kExtern:
          if (!OursToPlace(b)) {
            placement.home = Home::kExtern;
          } else if (lives_[b].escapes) {
            placement.home = Home::kOutput;
          } else {
            placement.home = Home::kArena;
            if (lives_[b].last != kNever) in_arena.push_back(b);
          }
          break;
      }
    }
    PlaceInArena(std::move(in_arena));
  }

  int64_t Bytes(BufferId b) const {
    const ir::TensorType& type = program_.buffers[b].type;
    return RoundUp(std::max<int64_t>(1, ir::StorageExtent(type) * ir::ByteSize(type.dtype)));
  }

  void PlaceInArena(std::vector<BufferId> buffers) {
    std::stable_sort(buffers.begin(), buffers.end(), [&](BufferId a, BufferId b) { return Bytes(a) > Bytes(b); });
    std::vector<BufferId> placed;  // by offset
    for (BufferId b : buffers) {
      const int64_t size = Bytes(b);
      int64_t best_offset = -1;
      int64_t best_gap = std::numeric_limits<int64_t>::max();
      int64_t end = 0;  // of the occupied range so far, among those that b meets
      for (BufferId other : placed) {
        if (!lives_[b].Meets(lives_[other])) continue;
        const int64_t start = plan_.placements[other].offset_bytes;
        if (start - end >= size && start - end < best_gap) {
          best_gap = start - end;
          best_offset = end;
        }
        end = std::max(end, start + Bytes(other));
      }
      const int64_t offset = best_offset >= 0 ? best_offset : end;
      plan_.placements[b].offset_bytes = offset;
      plan_.arena_bytes = std::max(plan_.arena_bytes, offset + size);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                     [&](BufferId x, BufferId y) {
                                       return plan_.placements[x].offset_bytes < plan_.placements[y].offset_bytes;
                                     }),
                    b);
    }
  }

  void FreeExterns() {
    for (BufferId b = 0; b < static_cast<BufferId>(program_.buffers.size()); ++b) {
      const Life& life = lives_[b];
      if (plan_.placements[b].home == Home::kExtern && !life.escapes && life.last != kNever) {
        plan_.free_after[life.last].push_back(b);
      }
    }
  }

  const ir::Graph& graph_;
  const loops::Program& program_;
  std::vector<Life> lives_;                    // by root buffer
  std::vector<std::vector<BufferId>> shares_;  // per extern result: roots whose storage it may share
  std::vector<bool> direct_result_;            // extern results that an out= overload writes
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan PlanMemory(const ir::Graph& graph, const loops::Program& program) { return Planner(graph, program).Plan(); }

std::string_view OutOverload(std::string_view op) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kOverloads = {{
      {"aten.mm.default", "aten.mm.out"},
      {"aten.addmm.default", "aten.addmm.out"},
      {"aten.bmm.default", "aten.bmm.out"},
      {"aten.baddbmm.default", "aten.baddbmm.out"},
  }};
  for (const auto& [functional, out] : kOverloads) {
    if (op == functional) return out;
  }
  return {};
}

loops::BufferId RootOf(const loops::Program& program, loops::BufferId buffer) {
  while (program.buffers[buffer].kind == Buffer::Kind::kView) buffer = program.buffers[buffer].base;
  return buffer;
}

}  // namespace stepone::planning
