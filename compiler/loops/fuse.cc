#include <set>
#include <utility>
#include <vector>

#include "compiler/loops/buffer_table.h"
#include "compiler/loops/fusion_graph.h"
#include "compiler/loops/group_name.h"
#include "compiler/loops/grouping.h"
#include "compiler/loops/layout.h"
#include "compiler/loops/lower_group.h"
#include "compiler/loops/normalize.h"
#include "compiler/loops/program.h"

namespace stepone::loops {

using ir::Node;
using ir::Op;
using ir::ValueId;

namespace {

// What earlier attempts found out.
struct Lessons {
  std::set<ValueId> copied;    // operands of views that need a copy
  std::set<ir::NodeId> alone;  // nodes whose group could not be lowered
};

// Base values that must be in memory: those that somebody else than their own group reads.
std::vector<bool> FindStored(const FusionGraph& fusion, const std::vector<Group>& groups) {
  const ir::Graph& graph = fusion.graph();
  std::vector<bool> stored(graph.num_values(), false);
  std::vector<int32_t> group_of(fusion.items().size(), -1);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int32_t item : groups[g].items) group_of[item] = static_cast<int32_t>(g);
  }
  for (ValueId value = 0; value < graph.num_values(); ++value) stored[value] = fusion.Required(value);
  for (size_t g = 0; g < groups.size(); ++g) {
    for (int32_t item : groups[g].items) {
      for (const Leaf& leaf : fusion.item(item).leaves) {
        const int32_t producer = fusion.ProducerItem(leaf.base);
        if (producer < 0 || group_of[producer] != static_cast<int32_t>(g)) stored[leaf.base] = true;
      }
    }
  }
  return stored;
}

Step OpaqueStep(const ir::Graph& graph, const Item& item, BufferTable& buffers) {
  const Node& node = graph.node(item.node);
  if (node.op == Op::kSeed) return DrawSeed{buffers.Of(node.results[0])};
  ExternCall call;
  call.node = item.node;
  for (ValueId operand : node.operands) call.operands.push_back(operand == ir::kNoValue ? -1 : buffers.Of(operand));
  for (ValueId result : node.results) call.results.push_back(result == ir::kNoValue ? -1 : buffers.Of(result));
  return call;
}

// False: `lessons` has something new, try again.
bool Attempt(const ir::Graph& original, const FuseOptions& options, Lessons& lessons, Program& program) {
  std::vector<ValueId> pinned;
  const ir::Graph graph = Normalize(original, lessons.copied, &pinned);
  FusionGraph fusion(graph, pinned);
  Grouping grouping = MakeGroups(fusion, options, lessons.alone);
  const std::vector<bool> stored = FindStored(fusion, grouping.groups);
  BufferTable buffers(graph, program);
  bool learned = false;
  for (const Group& group : grouping.groups) {
    if (group.opaque) {
      program.steps.push_back(OpaqueStep(graph, fusion.item(group.items[0]), buffers));
      continue;
    }
    const LowerFailure failure = LowerGroup(fusion, group, stored, options, buffers, program.steps);
    if (!failure.failed) continue;
    if (failure.copy != ir::kNoValue && failure.copy < original.num_values()) {
      learned |= lessons.copied.insert(failure.copy).second;
    } else {
      for (int32_t item : group.items) learned |= lessons.alone.insert(fusion.item(item).node).second;
    }
    if (learned) return false;
    program.error = "no loops for " + GroupName(fusion, group);
    return true;
  }
  for (const ir::Output& output : graph.outputs) {
    ProgramOutput result;
    if (output.value != ir::kNoValue) result.buffer = buffers.Of(output.value);
    result.number = output.number;
    program.outputs.push_back(result);
  }
  program.decisions = std::move(grouping.decisions);
  return true;
}

}  // namespace

Program Fuse(const ir::Graph& graph, const FuseOptions& options) {
  Lessons lessons;
  for (;;) {
    // Each failed attempt learns of one node or value more, so there is an end.
    Program program;
    if (Attempt(graph, options, lessons, program)) return program;
  }
}

}  // namespace stepone::loops
