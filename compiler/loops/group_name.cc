#include "compiler/loops/group_name.h"

#include <algorithm>
#include <set>
#include <vector>

namespace stepone::loops {

using ir::Op;

std::string GroupName(const FusionGraph& fusion, const Group& group) {
  std::set<Op> row_reductions, all;
  bool column_sums = false, combines = false;
  for (size_t i = 0; i < group.items.size(); ++i) {
    const Item& item = fusion.item(group.items[i]);
    const Op op = fusion.graph().node(item.node).op;
    if (item.kind == ItemKind::kOpaque) {
      const auto& call = fusion.graph().node(item.node).call;
      return call ? call->op : std::string(ir::Name(op));
    }
    if (item.kind == ItemKind::kCombine) {
      combines = true;
    } else if (item.kind == ItemKind::kReduce && i < group.roles.size() && group.roles[i] != ReduceRole::kRow) {
      column_sums = true;
    } else if (item.kind == ItemKind::kReduce) {
      row_reductions.insert(op);
    } else {
      all.insert(op);
    }
  }
  const auto has = [&](Op op) { return all.count(op) > 0; };
  const auto sums = [&](Op op) { return row_reductions.count(op) > 0; };
  std::vector<std::string> words;
  const auto say = [&](bool when, const char* word) {
    if (when) words.push_back(word);
  };
  const bool softmax = sums(Op::kMax) && sums(Op::kSum) && has(Op::kExp);
  say(has(Op::kTake), "embedding");
  say(softmax, has(Op::kLog) ? "log_softmax" : "softmax");
  const bool norm = sums(Op::kSum) && !softmax && (has(Op::kRsqrt) || has(Op::kSqrt));
  say(norm, "norm");
  say(!softmax && !norm && !row_reductions.empty(), "row_sum");
  say(has(Op::kErf), "gelu");
  say(has(Op::kTanh), "tanh");
  say(has(Op::kSigmoid), "sigmoid");
  say(has(Op::kExp) && !softmax, "exp");
  say(has(Op::kRandom), "dropout");
  say(has(Op::kGather), "gather");
  say(has(Op::kTakeGrad), "embedding_backward");
  say(has(Op::kScatterAdd), "scatter_add");
  say(has(Op::kConcat), "concat");
  say(has(Op::kMaximum), "maximum");
  say(has(Op::kWhere), "where");
  say(has(Op::kDiv), "div");
  say(has(Op::kMul), "mul");
  say(has(Op::kAdd) || has(Op::kSub), "add");
  say(column_sums, "column_sum");
  say(combines, "combine");
  if (words.empty() && !all.empty()) words.push_back(std::string(ir::Name(*all.begin())));
  std::string name;
  for (const std::string& word : words) {
    if (name.size() + word.size() + 1 > 60) break;
    if (!name.empty()) name += '_';
    name += word;
  }
  return name.empty() ? "kernel" : name;
}

}  // namespace stepone::loops
