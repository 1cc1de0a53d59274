#include "compiler/loops/reachability.h"

#include <bit>
#include <cstddef>

namespace stepone::loops {
namespace {

template <typename F>
void ForEach(const std::vector<uint64_t>& bits, F visit) {
  for (size_t w = 0; w < bits.size(); ++w) {
    for (uint64_t rest = bits[w]; rest != 0; rest &= rest - 1) {
      visit(static_cast<int32_t>(64 * w + std::countr_zero(rest)));
    }
  }
}

}  // namespace

Reachability::Reachability(int32_t nodes, const std::vector<std::pair<int32_t, int32_t>>& edges)
    : after_(nodes, Bits((nodes + 63) / 64, 0)), before_(after_) {
  std::vector<std::vector<int32_t>> next(nodes);
  std::vector<int32_t> waiting(nodes, 0);
  for (const auto& [from, to] : edges) {
    if (from == to) continue;
    next[from].push_back(to);
    ++waiting[to];
  }
  std::vector<int32_t> order;
  for (int32_t i = 0; i < nodes; ++i) {
    if (waiting[i] == 0) order.push_back(i);
  }
  for (size_t at = 0; at < order.size(); ++at) {
    const int32_t node = order[at];
    for (int32_t to : next[node]) {
      Set(before_[to], node);
      for (size_t w = 0; w < before_[to].size(); ++w) before_[to][w] |= before_[node][w];
      if (--waiting[to] == 0) order.push_back(to);
    }
  }
  for (int32_t i = 0; i < nodes; ++i) {
    ForEach(before_[i], [&](int32_t earlier) { Set(after_[earlier], i); });
  }
}

bool Reachability::MergeMakesCycle(int32_t a, int32_t b) const {
  for (size_t w = 0; w < after_[a].size(); ++w) {
    if ((after_[a][w] & before_[b][w]) != 0 || (after_[b][w] & before_[a][w]) != 0) return true;
  }
  return false;
}

void Reachability::Merge(int32_t into, int32_t from) {
  for (size_t w = 0; w < after_[into].size(); ++w) {
    after_[into][w] |= after_[from][w];
    before_[into][w] |= before_[from][w];
  }
  for (int32_t node : {into, from}) {
    Clear(after_[into], node);
    Clear(before_[into], node);
  }
  ForEach(before_[into], [&](int32_t earlier) {
    Bits& bits = after_[earlier];
    for (size_t w = 0; w < bits.size(); ++w) bits[w] |= after_[into][w];
    Set(bits, into);
    Clear(bits, from);
  });
  ForEach(after_[into], [&](int32_t later) {
    Bits& bits = before_[later];
    for (size_t w = 0; w < bits.size(); ++w) bits[w] |= before_[into][w];
    Set(bits, into);
    Clear(bits, from);
  });
}

}  // namespace stepone::loops
