// Groups of items that become one kernel, and what makes a group legal.
#ifndef STEPONE_COMPILER_LOOPS_GROUP_H_
#define STEPONE_COMPILER_LOOPS_GROUP_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/loops/fusion_graph.h"
#include "compiler/loops/program.h"

namespace stepone::loops {

// A base value that a group computes or reads, and where, over the group's atoms.
struct Touch {
  ir::ValueId base = ir::kNoValue;
  bool produced = false;
  bool direct = false;
  std::vector<IndexExpr> coords;
  bool operator==(const Touch&) const = default;
};

// How a reduction is computed.
enum class ReduceRole : uint8_t {
  kRow,          // over the columns
  kAccumulate,   // over the rows
  kRowThenRows,  // over all: over the columns, then over the rows
};

// Plain data; made and changed by the functions below only.
struct Group {
  std::vector<int32_t> items;                      // ascending
  ir::Dims atoms;                                  // sizes of the common iteration space
  std::vector<std::vector<IndexExpr>> item_atoms;  // per item: its own atoms over the group's
  std::vector<Touch> touches;                      // sorted by base
  uint64_t columns = 0;                            // atoms that are columns
  std::vector<ReduceRole> roles;                   // per item; of meaning for reductions
  bool has_reduction = false;
  bool has_scatter = false;
  bool opaque = false;

  int64_t Points() const;
};

Group SingleGroup(const FusionGraph& fusion, int32_t item);

// The two groups as one kernel. Empty, with `why` set, when that is not possible. Does not look at cycles.
std::optional<Group> MergeGroups(const FusionGraph& fusion, const Group& a, const Group& b, const FuseOptions& options,
                                 std::string* why);

// Positions of an item's domain over its group's atoms. REQUIRES: the group holds the item at `index`.
std::optional<std::vector<IndexExpr>> ItemCoords(const FusionGraph& fusion, const Group& group, size_t index);
// The dims of a reduction's domain that stay.
std::vector<IndexExpr> KeptCoords(const ir::Node& node, const std::vector<IndexExpr>& coords);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_GROUP_H_
