#include "compiler/planning/plan_memory.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "compiler/planning/in_place.h"

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
  Planner(const ir::Graph& graph, const loops::Program& program, const PlanOptions& options)
      : graph_(graph),
        program_(program),
        options_(options),
        lives_(program.buffers.size()),
        shares_(program.buffers.size()) {}

  MemoryPlan Plan() {
    plan_.placements.resize(program_.buffers.size());
    plan_.free_after.resize(program_.steps.size());
    plan_.out_overload.resize(program_.steps.size());
    plan_.in_place_of.assign(program_.buffers.size(), -1);
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
          }
          break;
      }
    }
    PlaceInArena();
  }

  int64_t Bytes(BufferId b) const {
    const ir::TensorType& type = program_.buffers[b].type;
    return RoundUp(std::max<int64_t>(1, ir::StorageExtent(type) * ir::ByteSize(type.dtype)));
  }

  bool InArena(BufferId b) const { return plan_.placements[b].home == Home::kArena && lives_[b].last != kNever; }

  // A longer life can make the greedy placement worse, so what is written in place must show that it pays.
  void PlaceInArena() {
    Layout apart = PlaceAll(std::vector<BufferId>(program_.buffers.size(), -1));
    if (options_.in_place) {
      std::vector<BufferId> in_place_of = ChooseInPlace();
      Layout in_place = PlaceAll(in_place_of);
      if (in_place.arena_bytes <= apart.arena_bytes) {
        apart = std::move(in_place);
        plan_.in_place_of = std::move(in_place_of);
      }
    }
    plan_.arena_bytes = apart.arena_bytes;
    for (size_t b = 0; b < plan_.placements.size(); ++b) plan_.placements[b].offset_bytes = apart.offsets[b];
  }

  // Per buffer: the operand in whose place the kernel that writes it first may write it, or -1.
  std::vector<BufferId> ChooseInPlace() const {
    std::vector<BufferId> in_place_of(program_.buffers.size(), -1);
    // Not candidates: memory that has another name, which a kernel may read, and what another result took already.
    std::vector<bool> taken(program_.buffers.size(), false);
    for (const std::vector<BufferId>& operands : shares_) {
      for (BufferId operand : operands) taken[operand] = true;
    }
    for (size_t step = 0; step < program_.steps.size(); ++step) {
      const auto* launch = std::get_if<loops::Launch>(&program_.steps[step]);
      if (launch == nullptr) continue;
      for (size_t out = 0; out < launch->buffers.size(); ++out) {
        const BufferId result = launch->buffers[out];
        if (!InArena(result) || lives_[result].first != static_cast<int32_t>(step)) continue;
        const BufferId operand = DyingOperand(*launch, static_cast<int32_t>(step), out, taken);
        if (operand < 0) continue;
        in_place_of[result] = operand;
        taken[operand] = true;
      }
    }
    return in_place_of;
  }

  // An operand of the launch, which is step `step`, that its argument `out` may replace, or -1.
  BufferId DyingOperand(const loops::Launch& launch, int32_t step, size_t out, const std::vector<bool>& taken) const {
    const BufferId result = launch.buffers[out];
    if (!NamedOnce(launch, result)) return -1;
    for (size_t in = 0; in < launch.buffers.size(); ++in) {
      const BufferId operand = launch.buffers[in];
      if (operand == result || taken[operand] || !InArena(operand) || !NamedOnce(launch, operand)) continue;
      const bool dies = lives_[operand].first < step && lives_[operand].last == step;
      if (!dies || Bytes(operand) != Bytes(result)) continue;
      if (MayWriteInPlace(launch.kernel, static_cast<int32_t>(out), static_cast<int32_t>(in))) return operand;
    }
    return -1;
  }

  // Whether no other argument of the launch is in the same memory.
  bool NamedOnce(const loops::Launch& launch, BufferId operand) const {
    return std::count_if(launch.buffers.begin(), launch.buffers.end(),
                         [&](BufferId b) { return RootOf(program_, b) == operand; }) == 1;
  }

  struct Layout {
    std::vector<int64_t> offsets;  // per buffer
    int64_t arena_bytes = 0;
  };

  // A buffer and those written in its place, one after the other, are placed as one that lives as long as all of them.
  Layout PlaceAll(const std::vector<BufferId>& in_place_of) const {
    const auto count = static_cast<BufferId>(program_.buffers.size());
    std::vector<BufferId> place_of(count);
    std::vector<Life> lives = lives_;
    std::vector<BufferId> places;
    for (BufferId b = 0; b < count; ++b) {
      place_of[b] = b;
      while (in_place_of[place_of[b]] >= 0) place_of[b] = in_place_of[place_of[b]];
      lives[place_of[b]].last = std::max(lives[place_of[b]].last, lives_[b].last);
      if (place_of[b] == b && InArena(b)) places.push_back(b);
    }
    Layout layout;
    layout.offsets.assign(count, 0);
    PlaceEach(std::move(places), lives, layout);
    for (BufferId b = 0; b < count; ++b) layout.offsets[b] = layout.offsets[place_of[b]];
    return layout;
  }

  void PlaceEach(std::vector<BufferId> buffers, const std::vector<Life>& lives, Layout& layout) const {
    std::stable_sort(buffers.begin(), buffers.end(), [&](BufferId a, BufferId b) { return Bytes(a) > Bytes(b); });
    std::vector<BufferId> placed;  // by offset
    for (BufferId b : buffers) {
      const int64_t size = Bytes(b);
      int64_t best_offset = -1;
      int64_t best_gap = std::numeric_limits<int64_t>::max();
      int64_t end = 0;  // of the occupied range so far, among those that b meets
      for (BufferId other : placed) {
        if (!lives[b].Meets(lives[other])) continue;
        const int64_t start = layout.offsets[other];
        if (start - end >= size && start - end < best_gap) {
          best_gap = start - end;
          best_offset = end;
        }
        end = std::max(end, start + Bytes(other));
      }
      layout.offsets[b] = best_offset >= 0 ? best_offset : end;
      layout.arena_bytes = std::max(layout.arena_bytes, layout.offsets[b] + size);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), b,
                                     [&](BufferId x, BufferId y) { return layout.offsets[x] < layout.offsets[y]; }),
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
  const PlanOptions& options_;
  std::vector<Life> lives_;                    // by root buffer
  std::vector<std::vector<BufferId>> shares_;  // per extern result: roots whose storage it may share
  std::vector<bool> direct_result_;            // extern results that an out= overload writes
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan PlanMemory(const ir::Graph& graph, const loops::Program& program, const PlanOptions& options) {
  return Planner(graph, program, options).Plan();
}

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
