#include "compiler/loops/stage_builder.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "compiler/analysis/op_cost.h"

namespace stepone::loops {
namespace {

constexpr int64_t kExpensive = 20;
constexpr int64_t kStashCost = 6;  // what is cheaper than this is computed again
constexpr int64_t kMostCost = 1000;

class Builder {
 public:
  Builder(const ExprGraph& exprs, int64_t slot_bytes, Kernel& kernel)
      : exprs_(exprs), slot_bytes_(slot_bytes), kernel_(kernel), facts_(exprs.size()) {
    for (size_t d = kernel.num_outer; d < kernel.dims.size(); ++d) row_elements_ *= kernel.dims[d];
    // A vector of rows at a time.
    if (kernel.vector_dim >= 0 && kernel.vector_dim < kernel.num_outer) row_elements_ *= 16;
  }

  void Run() {
    for (const Inst& root : exprs_.roots) {
      for (InstId arg : root.args) Mark(arg);
    }
    for (ExprId id = 0; id < exprs_.size(); ++id) {
      if (facts_[id].used) Describe(id);
    }
    std::vector<Facts> roots;
    int32_t last = 0;
    for (const Inst& root : exprs_.roots) {
      roots.push_back(FactsOf(root));
      last = std::max(last, roots.back().level);
    }
    for (ExprId id = 0; id < exprs_.size(); ++id) {
      if (facts_[id].used) last = std::max(last, facts_[id].level);
    }
    PlaceRoots(last, roots);
    for (int32_t level = 0; level <= last; ++level) {
      RowStage(level, roots);
      ElementStage(level, roots);
    }
    std::erase_if(stages_, [](const Stage& stage) { return stage.insts.empty(); });
    kernel_.stages = std::move(stages_);
  }

 private:
  struct Facts {
    bool used = false;
    bool element = false;
    int32_t level = 0;  // element: the first stage that can compute it; row: the first row stage that has it
    int64_t cost = 0;   // of computing it in a stage, from loads and row values
  };

  // A store or accumulate goes to the stage, from the first that can compute its value on, that computes most of it
  // anyway: what is needed late is not computed early and kept.
  void PlaceRoots(int32_t last, std::vector<Facts>& roots) {
    needed_.assign(static_cast<size_t>(last) + 1, std::vector<bool>(facts_.size(), false));
    for (ExprId id = 0; id < exprs_.size(); ++id) {
      if (!facts_[id].used || exprs_.at(id).code != Code::kReduce) continue;
      for (InstId arg : exprs_.at(id).args) ExtraCost(arg, needed_[facts_[id].level - 1]);
    }
    std::vector<size_t> order;
    for (size_t r = 0; r < roots.size(); ++r) {
      if (roots[r].element) order.push_back(r);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return roots[a].level > roots[b].level; });
    for (size_t r : order) {
      const std::vector<InstId>& args = exprs_.roots[r].args;
      int64_t least = -1;
      int32_t best = roots[r].level;
      for (int32_t level = roots[r].level; level <= last; ++level) {
        std::vector<bool> here = needed_[level];
        if (std::count(here.begin(), here.end(), true) == 0 && level != roots[r].level) continue;
        int64_t cost = 0;
        for (InstId arg : args) cost += ExtraCost(arg, here);
        if (least < 0 || cost < least) {
          least = cost;
          best = level;
        }
      }
      roots[r].level = best;
      for (InstId arg : args) ExtraCost(arg, needed_[best]);
    }
  }

  // Marks an element expression and all that it is made of; the cost of what was not marked before.
  int64_t ExtraCost(ExprId id, std::vector<bool>& marked) const {
    if (!facts_[id].element || marked[id]) return 0;
    marked[id] = true;
    int64_t cost = OwnCost(exprs_.at(id));
    for (InstId arg : exprs_.at(id).args) cost += ExtraCost(arg, marked);
    return cost;
  }

  void Mark(ExprId id) {
    if (facts_[id].used) return;
    facts_[id].used = true;
    for (InstId arg : exprs_.at(id).args) Mark(arg);
  }

  bool UsesColumns(const Inst& inst) const {
    return std::any_of(inst.index.terms.begin(), inst.index.terms.end(),
                       [&](const Term& term) { return term.dim >= kernel_.num_outer; });
  }

  static int64_t OwnCost(const Inst& inst) {
    const bool expensive = inst.code == Code::kRandom || (inst.code == Code::kScalar && analysis::IsExpensive(inst.op));
    return (expensive ? kExpensive : 1) + 2 * static_cast<int64_t>(inst.indirect.size());
  }

  Facts FactsOf(const Inst& inst) const {
    Facts facts;
    facts.used = true;
    facts.element = UsesColumns(inst);
    facts.cost = OwnCost(inst);
    for (InstId arg : inst.args) {
      facts.level = std::max(facts.level, facts_[arg].level);
      facts.element |= facts_[arg].element;
      if (facts_[arg].element) facts.cost += facts_[arg].cost;
    }
    facts.cost = std::min(facts.cost, kMostCost);
    if (inst.code == Code::kReduce) {
      facts.element = false;
      facts.level += 1;
    }
    return facts;
  }

  void Describe(ExprId id) { facts_[id] = FactsOf(exprs_.at(id)); }

  InstId Emit(Inst inst, Stage& stage) {
    const InstId id = static_cast<InstId>(kernel_.insts.size());
    kernel_.insts.push_back(std::move(inst));
    stage.insts.push_back(id);
    return id;
  }

  void RowStage(int32_t level, const std::vector<Facts>& roots) {
    stages_.push_back(Stage{false, {}});
    Stage& stage = stages_.back();
    for (ExprId id = 0; id < exprs_.size(); ++id) {
      const Facts& facts = facts_[id];
      if (!facts.used || facts.element || facts.level != level || exprs_.at(id).code == Code::kReduce) continue;
      Inst inst = exprs_.at(id);
      for (InstId& arg : inst.args) arg = row_insts_.at(arg);
      row_insts_[id] = Emit(std::move(inst), stage);
    }
    for (size_t r = 0; r < roots.size(); ++r) {
      if (roots[r].element || roots[r].level != level) continue;
      Inst inst = exprs_.roots[r];
      for (InstId& arg : inst.args) arg = row_insts_.at(arg);
      Emit(std::move(inst), stage);
    }
  }

  void ElementStage(int32_t level, const std::vector<Facts>& roots) {
    stages_.push_back(Stage{true, {}});
    element_insts_.emplace_back();
    for (ExprId id = 0; id < exprs_.size(); ++id) {
      if (!facts_[id].used || exprs_.at(id).code != Code::kReduce || facts_[id].level != level + 1) continue;
      Inst inst = exprs_.at(id);
      for (InstId& arg : inst.args) arg = Need(arg);
      row_insts_[id] = Emit(std::move(inst), stages_.back());
    }
    for (size_t r = 0; r < roots.size(); ++r) {
      if (!roots[r].element || roots[r].level != level) continue;
      Inst inst = exprs_.roots[r];
      for (InstId& arg : inst.args) arg = Need(arg);
      Emit(std::move(inst), stages_.back());
    }
  }

  // The instruction of the present element stage (or of a row stage) that gives the expression.
  InstId Need(ExprId id) {
    if (!facts_[id].element) return row_insts_.at(id);
    std::map<ExprId, InstId>& here = element_insts_.back();
    if (const auto at = here.find(id); at != here.end()) return at->second;
    if (const int32_t slot = StashedSlot(id); slot >= 0) {
      Inst inst;
      inst.code = Code::kUnstash;
      inst.type = exprs_.at(id).type;
      inst.slot = slot;
      return here[id] = Emit(std::move(inst), stages_.back());
    }
    Inst inst = exprs_.at(id);
    for (InstId& arg : inst.args) arg = Need(arg);
    return here[id] = Emit(std::move(inst), stages_.back());
  }

  // A slot that holds the value, filled in the earlier stage that computed it; -1: compute it again.
  int32_t StashedSlot(ExprId id) {
    if (const auto at = slots_.find(id); at != slots_.end()) return at->second;
    const int64_t bytes = row_elements_ * ir::ByteSize(exprs_.at(id).type);
    if (facts_[id].cost < kStashCost || bytes > slot_bytes_ || used_bytes_ + bytes > 2 * slot_bytes_) return -1;
    for (size_t s = 0; s + 1 < element_insts_.size(); ++s) {
      const auto at = element_insts_[s].find(id);
      if (at == element_insts_[s].end()) continue;
      Inst stash;
      stash.code = Code::kStash;
      stash.type = exprs_.at(id).type;
      stash.args = {at->second};
      stash.slot = static_cast<int32_t>(kernel_.slots.size());
      kernel_.slots.push_back(stash.type);
      used_bytes_ += bytes;
      slots_[id] = stash.slot;
      Emit(std::move(stash), stages_[2 * s + 1]);
      return slots_[id];
    }
    return -1;
  }

  const ExprGraph& exprs_;
  const int64_t slot_bytes_;
  Kernel& kernel_;
  std::vector<Facts> facts_;
  std::vector<std::vector<bool>> needed_;  // per element stage and expression
  int64_t row_elements_ = 1;
  int64_t used_bytes_ = 0;
  std::vector<Stage> stages_;  // row stage, element stage, per level
  std::map<ExprId, InstId> row_insts_;
  std::vector<std::map<ExprId, InstId>> element_insts_;  // per element stage
  std::map<ExprId, int32_t> slots_;
};

}  // namespace

void BuildStages(const ExprGraph& exprs, int64_t slot_bytes, Kernel& kernel) {
  Builder(exprs, slot_bytes, kernel).Run();
}

}  // namespace stepone::loops
