// The graph as fusion sees it: items (what is computed by a kernel or an extern call), what each item reads and at
// which positions, and which cheap values are computed again by every reader instead of being stored.
#ifndef STEPONE_COMPILER_LOOPS_FUSION_GRAPH_H_
#define STEPONE_COMPILER_LOOPS_FUSION_GRAPH_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/loops/index_expr.h"

namespace stepone::loops {

// A base value (no view's result, not inlined) that an item reads.
struct Leaf {
  ir::ValueId base = ir::kNoValue;
  // Read at exactly these positions, for each point of the item's domain. When not direct (behind guards, at computed
  // positions, through views that no expression follows), the value must be in memory before the item runs.
  bool direct = false;
  std::vector<IndexExpr> coords;  // one per dim of base, over the item's atoms
  bool operator==(const Leaf&) const = default;
};

enum class ItemKind : uint8_t {
  kElementwise,  // one result element per point of the domain
  kReduce,       // the domain is the operand's
  kScatter,      // take_grad and scatter_add: the domain is the added source's
  kParts,        // a concat of equal parts: the domain is a part's, each point gives one element per part
  kCombine,      // adds up the partial sums of a reduction that another kernel accumulated; domain: the result's
  kOpaque,       // an extern call or a seed draw
};

struct Item {
  ir::NodeId node = ir::kNoNode;
  ItemKind kind = ItemKind::kElementwise;
  ir::Dims domain;
  ir::Dims atoms;                 // the domain's dims of size above 1, cut where its leaves need it
  std::vector<IndexExpr> coords;  // per dim of the domain, over atoms
  uint64_t reduced = 0;           // kReduce: atoms that are summed over
  std::vector<Leaf> leaves;       // distinct
};

// Not thread-safe. Holds what fusion knows about a normalised graph; `graph` must outlive it.
class FusionGraph {
 public:
  // `pinned`: base values that must not be inlined and must be in memory (those that lowering could not reach
  // otherwise).
  FusionGraph(const ir::Graph& graph, const std::vector<ir::ValueId>& pinned);

  const ir::Graph& graph() const { return graph_; }
  const std::vector<Item>& items() const { return items_; }
  const Item& item(int32_t id) const { return items_[id]; }
  // Which item gives a base value; -1: a graph input or constant, or a value that is inlined everywhere.
  int32_t ProducerItem(ir::ValueId base) const { return producer_[base]; }
  // Computed again by each reader.
  bool Inlined(ir::NodeId node) const { return inlined_[node]; }
  // The value must be in memory whoever computes it: outputs, operands of extern calls, tables.
  bool Required(ir::ValueId base) const { return required_[base]; }
  // Bytes of a value's elements.
  int64_t Bytes(ir::ValueId value) const;

  // Replaces the producer of a reduction's result by a new combine item, which is returned.
  int32_t AddCombine(int32_t reduce_item);

 private:
  void FindUses();
  void FindRequired();
  void DecideInlining();
  bool ShouldInline(ir::NodeId node, int64_t cost, int64_t leaves) const;
  bool InEqualParts(const ir::Node& node) const;
  void AddItem(ir::NodeId node);

  const ir::Graph& graph_;
  std::vector<Item> items_;
  std::vector<int32_t> producer_;
  std::vector<bool> inlined_;
  std::vector<bool> required_;
  std::vector<bool> pinned_;
  std::vector<int32_t> uses_;        // per base value: nodes that read it, views looked through
  std::vector<bool> only_expanded_;  // per base value: all readers read it many times over
  std::vector<bool> only_moved_;     // per base value: all readers are pads, concatenations and gathers
};

// Positions in a view's operand for `coords` in its result. Empty with a split where Divide (index_expr.h) says so.
std::optional<std::vector<IndexExpr>> ViewCoords(const ir::Graph& graph, const ir::Node& view,
                                                 const std::vector<IndexExpr>& coords, const ir::Dims& sizes,
                                                 Split* split);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_FUSION_GRAPH_H_
