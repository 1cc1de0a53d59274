#include "compiler/loops/grouping.h"

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "compiler/loops/group_name.h"
#include "compiler/loops/layout.h"
#include "compiler/loops/reachability.h"
#include "compiler/loops/space.h"

namespace stepone::loops {

using ir::ValueId;

namespace {

constexpr double kLaunchBytes = 16384;       // a launch costs about as much as moving this
constexpr int64_t kSmallPoints = 16384;      // kernels so small are put side by side whatever they read
constexpr int64_t kLeastSharedBytes = 1024;  // values below do not make two readers neighbours
constexpr size_t kMostReaders = 12;          // of one value that are compared in all pairs
constexpr size_t kMostTouches = 96;          // of kernels made side by side
constexpr size_t kMostDecisions = 400;

using Edges = std::vector<std::pair<int32_t, int32_t>>;

// Which item must run before which: data flow, and the order of effects.
Edges ItemEdges(const FusionGraph& fusion) {
  Edges edges;
  const auto& items = fusion.items();
  int32_t last_effect = -1;
  std::map<ValueId, std::vector<int32_t>> readers;
  std::map<ValueId, int32_t> mutated_by;
  for (int32_t i = 0; i < static_cast<int32_t>(items.size()); ++i) {
    const Item& item = items[i];
    if (item.kind == ItemKind::kCombine) continue;
    const ir::Node& node = fusion.graph().node(item.node);
    for (const Leaf& leaf : item.leaves) {
      if (const int32_t producer = fusion.ProducerItem(leaf.base); producer >= 0) edges.emplace_back(producer, i);
      if (const auto at = mutated_by.find(leaf.base); at != mutated_by.end()) edges.emplace_back(at->second, i);
    }
    if (node.call && node.call->effects()) {
      if (last_effect >= 0) edges.emplace_back(last_effect, i);
      last_effect = i;
      for (int32_t operand : node.call->mutated_operands) {
        const ValueId base = BaseOf(fusion.graph(), node.operands[operand]);
        for (int32_t reader : readers[base]) edges.emplace_back(reader, i);
        mutated_by[base] = i;
      }
    }
    for (const Leaf& leaf : item.leaves) readers[leaf.base].push_back(i);
  }
  std::map<ir::NodeId, int32_t> reduces;
  for (int32_t i = 0; i < static_cast<int32_t>(items.size()); ++i) {
    if (items[i].kind == ItemKind::kReduce) reduces[items[i].node] = i;
    if (items[i].kind == ItemKind::kCombine) edges.emplace_back(reduces.at(items[i].node), i);
  }
  return edges;
}

class Merger {
 public:
  Merger(const FusionGraph& fusion, const FuseOptions& options, std::vector<Group> groups, const Edges& item_edges,
         const std::set<ir::NodeId>& alone, std::vector<FusionDecision>& decisions)
      : fusion_(fusion),
        options_(options),
        groups_(std::move(groups)),
        version_(groups_.size(), 0),
        alive_(groups_.size(), true),
        reach_(static_cast<int32_t>(groups_.size()), GroupEdges(item_edges)),
        decisions_(decisions) {
    for (int32_t g = 0; g < Count(); ++g) {
      for (const Touch& touch : groups_[g].touches) touching_[touch.base].insert(g);
      frozen_.push_back(groups_[g].opaque);
      for (int32_t item : groups_[g].items) frozen_[g] = frozen_[g] || alone.count(fusion.item(item).node) > 0;
    }
  }

  // Best pair first.
  void Run(bool combines_only) {
    combines_only_ = combines_only;
    for (int32_t g = 0; g < Count(); ++g) PushNeighbours(g, g);
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      if (!alive_[best.a] || !alive_[best.b]) continue;
      if (version_[best.a] != best.version_a || version_[best.b] != best.version_b) continue;
      if (TryMerge(best.a, best.b, best.score)) PushNeighbours(best.a, -1);
    }
  }

  // Small kernels over spaces of one size, side by side.
  void MergeSmall() {
    std::map<int64_t, std::vector<int32_t>> by_points;
    for (int32_t g = 0; g < Count(); ++g) {
      if (!alive_[g] || frozen_[g] || groups_[g].has_scatter) continue;
      const int64_t points = groups_[g].Points();
      if (points == 0 || points > kSmallPoints) continue;
      std::vector<int32_t>& others = by_points[points];
      bool done = false;
      for (size_t back = 0; back < 4 && back < others.size() && !done; ++back) {
        const int32_t other = others[others.size() - 1 - back];
        if (groups_[other].touches.size() + groups_[g].touches.size() > kMostTouches) continue;
        if (groups_[other].columns != 0 || groups_[g].columns != 0) continue;
        done = TryMerge(other, g, kLaunchBytes);
      }
      if (!done) others.push_back(g);
    }
  }

  std::vector<Group> Take() {
    std::vector<Group> result;
    for (int32_t g = 0; g < Count(); ++g) {
      if (alive_[g]) result.push_back(std::move(groups_[g]));
    }
    return result;
  }

 private:
  struct Candidate {
    double score;
    int32_t a, b;
    int32_t version_a, version_b;
    // The largest score first; of equal ones the first in the graph.
    bool operator<(const Candidate& other) const {
      return std::tie(score, other.a, other.b) < std::tie(other.score, a, b);
    }
  };

  int32_t Count() const { return static_cast<int32_t>(groups_.size()); }

  Edges GroupEdges(const Edges& item_edges) const {
    std::vector<int32_t> group_of(fusion_.items().size(), -1);
    for (int32_t g = 0; g < Count(); ++g) {
      for (int32_t item : groups_[g].items) group_of[item] = g;
    }
    Edges edges;
    for (const auto& [from, to] : item_edges) {
      if (group_of[from] != group_of[to]) edges.emplace_back(group_of[from], group_of[to]);
    }
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    return edges;
  }

  bool HasCombine(const Group& group) const {
    return std::any_of(group.items.begin(), group.items.end(),
                       [&](int32_t item) { return fusion_.item(item).kind == ItemKind::kCombine; });
  }

  bool MayPair(int32_t first, int32_t second) const {
    const Group& a = groups_[first];
    const Group& b = groups_[second];
    if (frozen_[first] || frozen_[second]) return false;
    if (!combines_only_) return true;
    if (a.has_reduction || b.has_reduction || a.has_scatter || b.has_scatter) return false;
    return HasCombine(a) || HasCombine(b);
  }

  // Pairs of `g` with every group that touches a value that it touches; only with groups after `after`.
  void PushNeighbours(int32_t g, int32_t after) {
    if (frozen_[g]) return;
    std::set<int32_t> neighbours;
    for (const Touch& touch : groups_[g].touches) {
      const std::set<int32_t>& others = touching_[touch.base];
      if (fusion_.Bytes(touch.base) < kLeastSharedBytes && !touch.produced && fusion_.ProducerItem(touch.base) < 0)
        continue;
      size_t seen = 0;
      for (auto it = others.lower_bound(g); it != others.end() && seen < kMostReaders; ++it, ++seen)
        neighbours.insert(*it);
      seen = 0;
      for (auto it = others.lower_bound(g); it != others.begin() && seen < kMostReaders; ++seen)
        neighbours.insert(*--it);
      if (const int32_t producer = ProducerGroup(touch.base); producer >= 0) neighbours.insert(producer);
    }
    neighbours.erase(g);
    for (int32_t other : neighbours) {
      if (other <= after || !MayPair(g, other) || reach_.MergeMakesCycle(g, other)) continue;
      const int32_t a = std::min(g, other), b = std::max(g, other);
      const double score = Score(groups_[a], groups_[b]);
      if (score > 0) queue_.push(Candidate{score, a, b, version_[a], version_[b]});
    }
  }

  int32_t ProducerGroup(ValueId base) {
    for (int32_t g : touching_[base]) {
      for (const Touch& touch : groups_[g].touches) {
        if (touch.base == base && touch.produced) return g;
      }
    }
    return -1;
  }

  int64_t TouchedBytes(const Group& group, const Touch& touch) const {
    int64_t elements = 1;
    const uint64_t mask = DimMask(touch.coords);
    for (size_t atom = 0; atom < group.atoms.size(); ++atom) {
      if ((mask >> atom) & 1) elements *= group.atoms[atom];
    }
    return std::min(fusion_.Bytes(touch.base), elements * ir::ByteSize(fusion_.graph().type(touch.base).dtype));
  }

  int64_t TotalBytes(const Group& group) const {
    int64_t total = 0;
    for (const Touch& touch : group.touches) total += touch.direct ? TouchedBytes(group, touch) : 0;
    return total;
  }

  // Bytes that need not be moved if the two were one; 0: not worth it.
  double Score(const Group& a, const Group& b) {
    double produced = 0, shared = 0;
    bool edge = false;
    for (size_t i = 0, j = 0; i < a.touches.size() && j < b.touches.size();) {
      const ValueId base = a.touches[i].base;
      if (base != b.touches[j].base) {
        ++(base < b.touches[j].base ? i : j);
        continue;
      }
      const size_t i_begin = i, j_begin = j;
      bool made_a = false, made_b = false, direct = true;
      while (i < a.touches.size() && a.touches[i].base == base) {
        made_a |= a.touches[i].produced;
        direct &= a.touches[i++].direct;
      }
      while (j < b.touches.size() && b.touches[j].base == base) {
        made_b |= b.touches[j].produced;
        direct &= b.touches[j++].direct;
      }
      if (made_a || made_b) {
        edge = true;
        if (!direct) return 0;
        produced +=
            static_cast<double>(fusion_.Bytes(base)) * (touching_[base].size() == 2 && !fusion_.Required(base) ? 2 : 1);
      } else if (direct) {
        shared +=
            static_cast<double>(std::min(TouchedBytes(a, a.touches[i_begin]), TouchedBytes(b, b.touches[j_begin])));
      }
    }
    if (edge) return produced + shared + kLaunchBytes;
    if (a.Points() != b.Points() || a.has_scatter || b.has_scatter) return 0;
    if (shared < 0.125 * static_cast<double>(std::min(TotalBytes(a), TotalBytes(b)))) return 0;
    return shared;
  }

  bool TryMerge(int32_t a, int32_t b, double score) {
    std::string why;
    std::optional<Group> merged;
    if (reach_.MergeMakesCycle(a, b)) {
      why = "another step needs one and is needed by the other";
    } else {
      merged = MergeGroups(fusion_, groups_[a], groups_[b], options_, &why);
    }
    if (decisions_.size() < kMostDecisions) {
      decisions_.push_back(FusionDecision{GroupName(fusion_, groups_[a]), GroupName(fusion_, groups_[b]), score,
                                          merged.has_value(), merged ? "saves memory traffic" : why});
    }
    if (!merged) return false;
    for (const Touch& touch : groups_[b].touches) {
      touching_[touch.base].erase(b);
      touching_[touch.base].insert(a);
    }
    reach_.Merge(a, b);
    groups_[a] = std::move(*merged);
    groups_[b] = Group{};
    alive_[b] = false;
    ++version_[a];
    return true;
  }

  const FusionGraph& fusion_;
  const FuseOptions& options_;
  std::vector<Group> groups_;
  std::vector<int32_t> version_;
  std::vector<bool> alive_;
  std::vector<bool> frozen_;  // extern calls, and what must stay alone
  Reachability reach_;
  std::vector<FusionDecision>& decisions_;
  std::map<ValueId, std::set<int32_t>> touching_;
  std::priority_queue<Candidate> queue_;
  bool combines_only_ = false;
};

// Groups in an order that respects the edges; of those that may run, the one whose last item comes first in the graph.
std::vector<Group> InOrder(const FusionGraph& fusion, std::vector<Group> groups, const Edges& item_edges) {
  std::vector<int32_t> position(fusion.graph().num_nodes(), 0);
  for (size_t i = 0; i < fusion.graph().order().size(); ++i)
    position[fusion.graph().order()[i]] = static_cast<int32_t>(i);
  std::vector<int32_t> group_of(fusion.items().size(), -1);
  std::vector<int32_t> key(groups.size(), 0);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int32_t item : groups[g].items) {
      group_of[item] = static_cast<int32_t>(g);
      key[g] = std::max(key[g], position[fusion.item(item).node]);
    }
  }
  std::set<std::pair<int32_t, int32_t>> edges;
  for (const auto& [from, to] : item_edges) {
    if (group_of[from] != group_of[to]) edges.emplace(group_of[from], group_of[to]);
  }
  std::vector<int32_t> waiting(groups.size(), 0);
  for (const auto& edge : edges) ++waiting[edge.second];
  std::priority_queue<std::pair<int32_t, int32_t>, std::vector<std::pair<int32_t, int32_t>>, std::greater<>> ready;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (waiting[g] == 0) ready.emplace(key[g], static_cast<int32_t>(g));
  }
  std::vector<Group> result;
  while (!ready.empty()) {
    const int32_t g = ready.top().second;
    ready.pop();
    for (auto it = edges.lower_bound({g, 0}); it != edges.end() && it->first == g; ++it) {
      if (--waiting[it->second] == 0) ready.emplace(key[it->second], it->second);
    }
    result.push_back(std::move(groups[g]));
  }
  return result;
}

// Accumulated reductions give partial sums: a combine item gives the value.
void SplitAccumulated(FusionGraph& fusion, std::vector<Group>& groups) {
  const size_t count = groups.size();
  for (size_t g = 0; g < count; ++g) {
    for (size_t i = 0; i < groups[g].items.size(); ++i) {
      const int32_t id = groups[g].items[i];
      if (fusion.item(id).kind != ItemKind::kReduce || groups[g].roles[i] == ReduceRole::kRow) continue;
      const ValueId result = fusion.graph().node(fusion.item(id).node).results[0];
      std::erase_if(groups[g].touches, [result](const Touch& touch) { return touch.base == result; });
      groups.push_back(SingleGroup(fusion, fusion.AddCombine(id)));
    }
  }
}

}  // namespace

Grouping MakeGroups(FusionGraph& fusion, const FuseOptions& options, const std::set<ir::NodeId>& alone) {
  Grouping result;
  for (size_t i = 0; i < fusion.items().size(); ++i) {
    result.groups.push_back(SingleGroup(fusion, static_cast<int32_t>(i)));
  }
  if (!options.disable_fusion) {
    Merger merger(fusion, options, std::move(result.groups), ItemEdges(fusion), alone, result.decisions);
    merger.Run(false);
    merger.MergeSmall();
    result.groups = merger.Take();
  }
  SplitAccumulated(fusion, result.groups);
  const Edges edges = ItemEdges(fusion);
  if (!options.disable_fusion) {
    Merger merger(fusion, options, std::move(result.groups), edges, alone, result.decisions);
    merger.Run(true);
    merger.MergeSmall();
    result.groups = merger.Take();
  }
  result.groups = InOrder(fusion, std::move(result.groups), edges);
  return result;
}

}  // namespace stepone::loops
