#include "compiler/loops/group.h"

#include <algorithm>
#include <cstdlib>

#include "compiler/loops/layout.h"
#include "compiler/loops/space.h"

namespace stepone::loops {

using ir::Node;
using ir::Op;
using ir::ValueId;

int64_t Group::Points() const {
  int64_t points = 1;
  for (int64_t size : atoms) points *= size;
  return points;
}

std::vector<IndexExpr> KeptCoords(const Node& node, const std::vector<IndexExpr>& coords) {
  const ir::Dims& dims = ir::DimsAttr(node, "dims");
  std::vector<IndexExpr> kept;
  for (size_t i = 0; i < coords.size(); ++i) {
    if (std::find(dims.begin(), dims.end(), static_cast<int64_t>(i)) == dims.end()) kept.push_back(coords[i]);
  }
  return kept;
}

namespace {

constexpr size_t kMaxItems = 200;
constexpr size_t kMaxBuffers = 48;

std::optional<std::vector<IndexExpr>> SubstituteAll(const std::vector<IndexExpr>& exprs,
                                                    const std::vector<IndexExpr>& to, const ir::Dims& sizes) {
  std::vector<IndexExpr> result;
  result.reserve(exprs.size());
  for (const IndexExpr& expr : exprs) {
    std::optional<IndexExpr> moved = Substitute(expr, to, sizes);
    if (!moved) return std::nullopt;
    result.push_back(std::move(*moved));
  }
  return result;
}

// The result's value and positions. Not direct when the group's other items cannot use it.
std::optional<Touch> Produced(const FusionGraph& fusion, const Item& item) {
  if (item.kind == ItemKind::kOpaque) return std::nullopt;
  const Node& node = fusion.graph().node(item.node);
  if (item.kind == ItemKind::kScatter || item.kind == ItemKind::kParts) {
    return Touch{node.results[0], true, false, {}};
  }
  Touch touch{node.results[0], true, true, {}};
  touch.coords = item.kind == ItemKind::kReduce ? KeptCoords(node, item.coords) : item.coords;
  return touch;
}

void AddTouch(std::vector<Touch>& touches, Touch touch) {
  const auto at = std::lower_bound(touches.begin(), touches.end(), touch.base,
                                   [](const Touch& t, ValueId base) { return t.base < base; });
  for (auto it = at; it != touches.end() && it->base == touch.base; ++it) {
    if (*it == touch) return;
  }
  touches.insert(at, std::move(touch));
}

uint64_t AllAtoms(const Group& group) { return group.atoms.empty() ? 0 : (~uint64_t{0} >> (64 - group.atoms.size())); }

// The atom along which the largest operand lies contiguously, as a mask; 0: unknown.
uint64_t ContiguousAtom(const FusionGraph& fusion, const Group& group, uint64_t all) {
  int64_t best_bytes = -1;
  uint64_t contiguous = 0;
  for (const Touch& touch : group.touches) {
    if (!touch.direct || (DimMask(touch.coords) & all) != all || fusion.Bytes(touch.base) <= best_bytes) continue;
    const ir::TensorType type = MemoryType(fusion.graph(), touch.base);
    best_bytes = fusion.Bytes(touch.base);
    int64_t smallest = INT64_MAX;
    for (size_t atom = 0; atom < group.atoms.size(); ++atom) {
      int64_t stride = 0;
      for (size_t d = 0; d < touch.coords.size(); ++d) {
        stride += Coefficient(touch.coords[d], static_cast<int32_t>(atom)) * type.strides[d];
      }
      stride = std::abs(stride);
      if (stride > 0 && stride < smallest) {
        smallest = stride;
        contiguous = uint64_t{1} << atom;
      }
    }
  }
  return contiguous;
}

// Row-wise or accumulated, when nothing but speed decides: the columns for a lone kind of reduction.
uint64_t PreferredColumns(const FusionGraph& fusion, const Group& group, uint64_t all, uint64_t reduced) {
  const uint64_t kept = all & ~reduced;
  if (kept == 0) return reduced;
  const uint64_t contiguous = ContiguousAtom(fusion, group, all);
  if (contiguous == 0 || (contiguous & reduced) != 0) return reduced;
  int64_t kept_count = 1, reduced_count = 1;
  for (size_t atom = 0; atom < group.atoms.size(); ++atom) {
    ((reduced >> atom) & 1 ? reduced_count : kept_count) *= group.atoms[atom];
  }
  // Memory runs along what is kept. Few sums, or many results: vectors of rows. Else partial sums per shard.
  const bool rows_of_vectors = kept_count >= 16384 || reduced_count <= 32;
  return rows_of_vectors ? reduced : kept;
}

bool CanAccumulate(Op op) {
  return op == Op::kSum || op == Op::kProd || op == Op::kMax || op == Op::kMin || op == Op::kAny || op == Op::kAll;
}

// Finds columns and the reductions' roles. False: no choice fits them all.
bool AssignRoles(const FusionGraph& fusion, Group& group, std::string* why) {
  const uint64_t all = AllAtoms(group);
  std::vector<uint64_t> domain(group.items.size());
  std::vector<uint64_t> reduced(group.items.size(), 0);
  std::vector<bool> read_inside(group.items.size(), false);
  uint64_t columns = 0;
  bool fixed = false;
  bool row_items = false;
  const auto fix = [&](uint64_t wanted) {
    if (fixed && columns != wanted) return false;
    fixed = true;
    columns = wanted;
    return true;
  };
  group.has_reduction = false;
  for (size_t i = 0; i < group.items.size(); ++i) {
    const Item& item = fusion.item(group.items[i]);
    domain[i] = DimMask(group.item_atoms[i]);
    if (domain[i] != all) {
      row_items = true;
      if (!fix(all & ~domain[i])) return *why = "two kinds of rows", false;
    }
    if (item.kind != ItemKind::kReduce) continue;
    group.has_reduction = true;
    for (size_t atom = 0; atom < item.atoms.size(); ++atom) {
      if ((item.reduced >> atom) & 1) reduced[i] |= DimMask(group.item_atoms[i][atom]);
    }
    const ValueId result = fusion.graph().node(item.node).results[0];
    for (const Touch& touch : group.touches) {
      if (touch.base == result && !touch.produced) read_inside[i] = true;
    }
    const Op op = fusion.graph().node(item.node).op;
    if (read_inside[i] || !CanAccumulate(op)) {
      if (domain[i] != all) return *why = "reduction of a row value is used inside", false;
      if (!fix(reduced[i])) return *why = "reductions over different dims", false;
    }
  }
  if (group.has_scatter && (group.has_reduction || row_items)) return *why = "scatter beside a reduction", false;
  if (!fixed && group.has_reduction) {
    for (size_t i = 0; i < group.items.size() && !fixed; ++i) {
      if (reduced[i] != 0 && reduced[i] != all) fix(PreferredColumns(fusion, group, all, reduced[i]));
    }
  }
  group.columns = columns;
  group.roles.assign(group.items.size(), ReduceRole::kRow);
  const uint64_t rows = all & ~columns;
  for (size_t i = 0; i < group.items.size(); ++i) {
    if (fusion.item(group.items[i]).kind != ItemKind::kReduce) continue;
    if (domain[i] == all && reduced[i] == columns && fixed) {
      group.roles[i] = ReduceRole::kRow;
    } else if (reduced[i] == rows && fixed) {
      group.roles[i] = ReduceRole::kAccumulate;
    } else if (domain[i] == all && reduced[i] == all) {
      group.roles[i] = ReduceRole::kRowThenRows;
    } else {
      return *why = "reductions over different dims", false;
    }
  }
  return true;
}

constexpr int64_t kLongRow = 32768;

// All that the kernel does would be one row, which one thread runs.
bool OneLongRow(const Group& group) {
  return group.columns != 0 && group.columns == AllAtoms(group) && group.Points() > kLongRow;
}

// Rows that lie across memory are fine as long as a vector of them stays in the second-level cache.
bool StridedRows(const FusionGraph& fusion, const Group& group, const FuseOptions& options) {
  if (group.columns == 0) return false;
  const uint64_t all = AllAtoms(group);
  if (!group.has_reduction) return (ContiguousAtom(fusion, group, all) & ~group.columns) != 0;
  if (group.columns == all || PreferredColumns(fusion, group, all, group.columns) == group.columns) return false;
  int64_t row = 1;
  for (size_t atom = 0; atom < group.atoms.size(); ++atom) {
    if ((group.columns >> atom) & 1) row *= group.atoms[atom];
  }
  constexpr int64_t kCacheLine = 64;
  const int64_t vectors = group.Points() / row * 4 / kCacheLine;
  return row * kCacheLine > options.l2_bytes || vectors < 4;
}

// Makes the two groups' spaces correspond. False: they cannot.
bool Align(const FusionGraph& fusion, const Group& a, const Group& b, Unifier& unify, std::string* why) {
  bool edge = false;
  std::vector<std::pair<const Touch*, const Touch*>> shared;
  for (size_t i = 0, j = 0; i < a.touches.size() && j < b.touches.size();) {
    if (a.touches[i].base != b.touches[j].base) {
      ++(a.touches[i].base < b.touches[j].base ? i : j);
      continue;
    }
    size_t i_end = i, j_end = j;
    while (i_end < a.touches.size() && a.touches[i_end].base == a.touches[i].base) ++i_end;
    while (j_end < b.touches.size() && b.touches[j_end].base == b.touches[j].base) ++j_end;
    for (size_t x = i; x < i_end; ++x) {
      for (size_t y = j; y < j_end; ++y) {
        const Touch& ta = a.touches[x];
        const Touch& tb = b.touches[y];
        if (ta.produced || tb.produced) {
          if (!ta.direct || !tb.direct) return *why = "read at other positions", false;
          edge = true;
          if (!unify.Require(ta.coords, tb.coords)) return *why = "positions do not correspond", false;
        } else if (ta.direct && tb.direct) {
          shared.emplace_back(&ta, &tb);
        }
      }
    }
    i = i_end;
    j = j_end;
  }
  std::stable_sort(shared.begin(), shared.end(), [&](const auto& x, const auto& y) {
    return fusion.Bytes(x.first->base) > fusion.Bytes(y.first->base);
  });
  for (const auto& [ta, tb] : shared) unify.Suggest(ta->coords, tb->coords);
  if (!edge && a.Points() != b.Points()) return *why = "different sizes", false;
  if (!unify.Finish()) return *why = "iteration spaces differ", false;
  return true;
}

}  // namespace

std::optional<std::vector<IndexExpr>> ItemCoords(const FusionGraph& fusion, const Group& group, size_t index) {
  return SubstituteAll(fusion.item(group.items[index]).coords, group.item_atoms[index], group.atoms);
}

Group SingleGroup(const FusionGraph& fusion, int32_t id) {
  const Item& item = fusion.item(id);
  Group group;
  group.items = {id};
  group.atoms = item.atoms;
  group.item_atoms.emplace_back();
  for (size_t i = 0; i < item.atoms.size(); ++i) group.item_atoms[0].push_back(DimIndex(static_cast<int32_t>(i)));
  group.opaque = item.kind == ItemKind::kOpaque;
  group.has_scatter = item.kind == ItemKind::kScatter;
  if (std::optional<Touch> touch = Produced(fusion, item)) AddTouch(group.touches, std::move(*touch));
  for (const Leaf& leaf : item.leaves) AddTouch(group.touches, Touch{leaf.base, false, leaf.direct, leaf.coords});
  std::string why;
  AssignRoles(fusion, group, &why);
  return group;
}

std::optional<Group> MergeGroups(const FusionGraph& fusion, const Group& a, const Group& b, const FuseOptions& options,
                                 std::string* why) {
  if (a.opaque || b.opaque) return *why = "extern call", std::nullopt;
  if (a.items.size() + b.items.size() > kMaxItems) return *why = "too many items", std::nullopt;
  if (a.Points() == 0 || b.Points() == 0) return *why = "nothing to compute", std::nullopt;
  if (a.has_scatter && b.has_scatter) return *why = "two scatters", std::nullopt;
  Unifier unify(a.atoms, b.atoms);
  if (!Align(fusion, a, b, unify, why)) return std::nullopt;

  Group merged;
  merged.atoms = unify.atoms();
  merged.has_scatter = a.has_scatter || b.has_scatter;
  size_t i = 0, j = 0;
  while (i < a.items.size() || j < b.items.size()) {
    const bool from_a = j == b.items.size() || (i < a.items.size() && a.items[i] < b.items[j]);
    const Group& from = from_a ? a : b;
    size_t& at = from_a ? i : j;
    std::optional<std::vector<IndexExpr>> moved =
        SubstituteAll(from.item_atoms[at], from_a ? unify.from_a() : unify.from_b(), merged.atoms);
    if (!moved) return *why = "positions cannot be written down", std::nullopt;
    merged.items.push_back(from.items[at]);
    merged.item_atoms.push_back(std::move(*moved));
    ++at;
  }
  for (const Group* from : {&a, &b}) {
    for (const Touch& touch : from->touches) {
      std::optional<std::vector<IndexExpr>> moved =
          SubstituteAll(touch.coords, from == &a ? unify.from_a() : unify.from_b(), merged.atoms);
      if (!moved) return *why = "positions cannot be written down", std::nullopt;
      AddTouch(merged.touches, Touch{touch.base, touch.produced, touch.direct, std::move(*moved)});
    }
  }
  if (merged.touches.size() > 2 * kMaxBuffers + kMaxItems) return *why = "too many buffers", std::nullopt;
  if (!AssignRoles(fusion, merged, why)) return std::nullopt;
  if (OneLongRow(merged)) return *why = "one row, too long for one thread", std::nullopt;
  if (StridedRows(fusion, merged, options)) return *why = "rows too large to be read across memory", std::nullopt;
  return merged;
}

}  // namespace stepone::loops
