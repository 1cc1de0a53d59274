#include "compiler/passes/eliminate_common_subexpressions.h"

#include <bit>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"

namespace stepone::passes {
namespace {

using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

// A node as a key: equal for nodes that compute the same. Floats compare by their bits (0.0 is not -0.0, NaN is NaN).
struct Key {
  const ir::Graph* graph;
  NodeId id;

  const Node& node() const { return graph->node(id); }
  const ir::TensorType& type() const { return graph->type(node().results[0]); }
};

bool SameAttr(const ir::Attr& a, const ir::Attr& b) {
  const auto* x = std::get_if<double>(&a);
  const auto* y = std::get_if<double>(&b);
  if (x != nullptr && y != nullptr) return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(*y);
  return a == b;
}

bool operator==(const Key& a, const Key& b) {
  const Node& x = a.node();
  const Node& y = b.node();
  if (x.op != y.op || x.operands != y.operands || x.attrs.size() != y.attrs.size() || !(a.type() == b.type())) {
    return false;
  }
  for (auto i = x.attrs.begin(), j = y.attrs.begin(); i != x.attrs.end(); ++i, ++j) {
    if (i->first != j->first || !SameAttr(i->second, j->second)) return false;
  }
  return true;
}

template <typename H>
H AbslHashValue(H h, const Key& key) {
  const Node& node = key.node();
  h = H::combine(std::move(h), static_cast<int>(node.op), node.operands, key.type().sizes,
                 static_cast<int>(key.type().dtype));
  for (const auto& [name, attr] : node.attrs) {
    if (const auto* real = std::get_if<double>(&attr)) {
      h = H::combine(std::move(h), std::bit_cast<uint64_t>(*real));
    } else if (const auto* dims = std::get_if<ir::Dims>(&attr)) {
      h = H::combine(std::move(h), *dims);
    } else if (const auto* integer = std::get_if<int64_t>(&attr)) {
      h = H::combine(std::move(h), *integer);
    }
  }
  return h;
}

}  // namespace

absl::StatusOr<bool> EliminateCommonSubexpressions(ir::Graph& graph, const PassOptions& options) {
  std::vector<bool> output(graph.num_values(), false);
  for (const ir::Output& out : graph.outputs) {
    if (out.value != kNoValue) output[out.value] = true;
  }
  std::vector<ValueId> replacements(graph.num_values());
  for (ValueId value = 0; value < graph.num_values(); ++value) replacements[value] = value;
  absl::flat_hash_map<Key, ValueId> known;
  std::vector<NodeId> kept;
  kept.reserve(graph.order().size());
  for (const NodeId id : graph.order()) {
    Node& node = graph.node(id);
    for (ValueId& operand : node.operands) operand = replacements[operand];
    kept.push_back(id);
    if (node.op == ir::Op::kAten || node.op == ir::Op::kCopy || node.op == ir::Op::kSeed) continue;
    const ValueId result = node.results[0];
    const auto [found, is_new] = known.try_emplace(Key{&graph, id}, result);
    if (is_new || (output[result] && output[found->second])) continue;
    output[found->second] = output[found->second] || output[result];
    replacements[result] = found->second;
    kept.pop_back();
  }
  const bool changed = kept.size() != graph.order().size();
  graph.set_order(std::move(kept));
  for (ir::Output& out : graph.outputs) {
    if (out.value != kNoValue) out.value = replacements[out.value];
  }
  return changed;
}

}  // namespace stepone::passes
