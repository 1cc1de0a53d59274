#include "compiler/planning/in_place.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace stepone::planning {
namespace {

using loops::Code;
using loops::IndexExpr;
using loops::Inst;
using loops::Kernel;
using loops::Term;

// Whether no two points of the iteration have the same index: each dim's stride steps over all that the smaller ones
// reach.
bool IsOneToOne(const IndexExpr& index, const Kernel& kernel) {
  std::vector<Term> terms = index.terms;
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.coefficient < b.coefficient; });
  std::vector<bool> used(kernel.dims.size(), false);
  int64_t reach = 0;
  for (const Term& term : terms) {
    if (kernel.dims[term.dim] <= 1) continue;
    if (term.divisor != 1 || term.modulus != 0 || used[term.dim] || term.coefficient <= reach) return false;
    used[term.dim] = true;
    reach += term.coefficient * (kernel.dims[term.dim] - 1);
  }
  for (size_t d = 0; d < kernel.dims.size(); ++d) {
    if (!used[d] && kernel.dims[d] > 1) return false;
  }
  return true;
}

}  // namespace

bool MayWriteInPlace(const Kernel& kernel, int32_t output, int32_t input) {
  if (kernel.buffers[output].dtype != kernel.buffers[input].dtype || kernel.ordered_rows) return false;
  std::vector<const Inst*> loads;
  const Inst* store = nullptr;
  for (const loops::Stage& stage : kernel.stages) {
    // A row stage runs once per row, while the store must reach every column.
    const bool every_point = stage.element || kernel.num_outer == static_cast<int32_t>(kernel.dims.size());
    for (loops::InstId id : stage.insts) {
      const Inst& inst = kernel.insts[id];
      if (inst.buffer == input) {
        if (inst.code != Code::kLoad || !inst.indirect.empty() || store != nullptr) return false;
        loads.push_back(&inst);
      } else if (inst.buffer == output) {
        if (inst.code != Code::kStore || !inst.indirect.empty() || inst.guard >= 0 || store != nullptr) return false;
        if (!every_point || !IsOneToOne(inst.index, kernel)) return false;
        store = &inst;
      }
    }
  }
  return store != nullptr && !loads.empty() &&
         std::all_of(loads.begin(), loads.end(), [&](const Inst* load) { return load->index == store->index; });
}

}  // namespace stepone::planning
