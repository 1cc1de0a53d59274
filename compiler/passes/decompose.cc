#include "compiler/passes/decompose.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "compiler/passes/decompositions/rule.h"
#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::passes {
namespace {

using ir::Builder;
using ir::Expr;
using ir::kNoValue;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

using RuleMap = absl::flat_hash_map<std::string_view, Results (*)(CallSite&)>;

const RuleMap& AllRules() {
  static const RuleMap* const map = [] {
    auto* rules = new RuleMap;
    for (const auto family : {ArithmeticRules, UnaryRules, ComparisonRules, ActivationRules, ActivationBackwardRules,
                              CreationRules, ViewRules, MoveRules, ReductionRules, SoftmaxRules, LossRules,
                              LayerNormRules, BatchNormRules, RandomRules, IndexingRules}) {
      for (const Rule& rule : family()) rules->emplace(rule.op, rule.apply);
    }
    return rules;
  }();
  return *map;
}

class Decomposer {
 public:
  Decomposer(ir::Graph& graph, const PassOptions& options) : graph_(graph), options_(options), builder_(graph) {}

  absl::StatusOr<bool> Run() {
    const std::vector<NodeId> old = graph_.order();
    replacements_.resize(graph_.num_values());
    for (ValueId value = 0; value < graph_.num_values(); ++value) replacements_[value] = value;
    graph_.set_order({});
    for (const NodeId id : old) {
      for (ValueId& operand : graph_.node(id).operands) operand = replacements_[operand];
      if (absl::Status status = Visit(id); !status.ok()) return status;
    }
    for (ir::Output& output : graph_.outputs) {
      if (output.value != kNoValue) output.value = replacements_[output.value];
    }
    return changed_;
  }

 private:
  bool KernelsCanHold(const ir::TensorType& type) const { return type.plain && ir::IsFusable(type.dtype); }

  // No results that somebody uses, or some that are not for kernels, keep a call a call; so do effects on operands.
  bool MayDecompose(const Node& node) const {
    if (node.call == nullptr || !node.call->mutated_operands.empty()) return false;
    if (node.call->uses_rng && options_.fallback_random) return false;
    bool used = false;
    for (const ValueId operand : node.operands) {
      if (!KernelsCanHold(graph_.type(operand))) return false;
    }
    for (const ValueId result : node.results) {
      if (result == kNoValue) continue;
      used = true;
      if (!KernelsCanHold(graph_.type(result))) return false;
    }
    return used;
  }

  absl::Status Visit(NodeId id) {
    if (!MayDecompose(graph_.node(id))) {
      graph_.AppendToOrder(id);
      return absl::OkStatus();
    }
    builder_.set_sources(graph_.node(id).sources);
    const size_t order_before = graph_.order().size();
    const ValueId first_new = graph_.num_values();
    Results results = Apply(id);
    if (builder_.failed()) {
      return InvalidNode(SourceName(id), builder_.failed_rule(), builder_.failure());
    }
    if (!results) {
      // Nothing uses what a rule may have added before it gave up.
      std::vector<NodeId> order = graph_.order();
      order.resize(order_before);
      if (order.size() != graph_.order().size()) graph_.set_order(std::move(order));
      graph_.AppendToOrder(id);
      return absl::OkStatus();
    }
    changed_ = true;
    return Replace(id, *results, first_new);
  }

  Results Apply(NodeId id) {
    // A copy: adding nodes moves the graph's own.
    const Node node = graph_.node(id);
    if (!node.call->uses_rng && HasNoElements(node)) {
      std::vector<Expr> results;
      for (const ValueId result : node.results) {
        const ir::TensorType type = result == kNoValue ? ir::Contiguous(ir::DType::kFloat32, {0}) : graph_.type(result);
        results.push_back(builder_.Full(int64_t{0}, type.dtype, type.sizes));
      }
      return results;
    }
    const auto rule = AllRules().find(node.call->op);
    if (rule == AllRules().end()) return Keep();
    CallSite site(builder_, node, options_);
    return rule->second(site);
  }

  bool HasNoElements(const Node& node) const {
    for (const ValueId result : node.results) {
      if (result != kNoValue && graph_.type(result).NumElements() != 0) return false;
    }
    return true;
  }

  absl::Status Replace(NodeId id, const std::vector<Expr>& results, ValueId first_new) {
    const Node node = graph_.node(id);
    if (results.size() != node.results.size()) {
      return InvalidNode(SourceName(id), "results",
                         StrCat(node.call->op, " has ", results.size(), " results, not ", node.results.size()));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const ValueId declared = node.results[i];
      if (declared == kNoValue) continue;
      const ir::TensorType type = graph_.type(declared);
      Expr result = results[i];
      if (result.dtype() != type.dtype || result.sizes() != type.sizes) {
        return InvalidNode(
            SourceName(id), "type-mismatch",
            StrCat("result ", i, " of ", node.call->op, " is ", ToString(result.type()), ", not ", ToString(type)));
      }
      if (node.call->result_aliases[i] < 0 && IsOldMemory(result, first_new) && !SharesByDesign(node)) {
        result = Copy(result, type.strides);
      } else if (result.id >= first_new) {
        graph_.value(result.id).type.strides = type.strides;
      }
      replacements_[declared] = result.id;
    }
    return absl::OkStatus();
  }

  // A value from before, or only a view of one: what the caller gets must be its own when the op says so.
  bool IsOldMemory(Expr result, ValueId first_new) const {
    ValueId value = result.id;
    while (value >= first_new) {
      const NodeId producer = graph_.value(value).producer;
      if (producer == ir::kNoNode || ir::KindOf(graph_.node(producer).op) != ir::OpKind::kView) return false;
      value = graph_.node(producer).operands[0];
    }
    return true;
  }

  // Views by another name: their schemas do not say so, since autograd must not know.
  static bool SharesByDesign(const Node& node) {
    return node.call->op == "aten._unsafe_view.default" || node.call->op == "aten._reshape_alias.default";
  }

  std::string SourceName(NodeId id) const {
    const Node& node = graph_.node(id);
    return node.sources.empty() ? node.call->op : node.sources[0];
  }

  ir::Graph& graph_;
  const PassOptions& options_;
  Builder builder_;
  std::vector<ValueId> replacements_;  // per value of the graph as it came: what stands for it now
  bool changed_ = false;
};

}  // namespace

absl::StatusOr<bool> Decompose(ir::Graph& graph, const PassOptions& options) {
  return Decomposer(graph, options).Run();
}

bool HasDecomposition(std::string_view op) { return AllRules().contains(op); }

}  // namespace stepone::passes
