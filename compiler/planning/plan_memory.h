// Where every buffer of a program lives: lifetimes, one arena with reuse, and what must outlive the run.
#ifndef STEPONE_COMPILER_PLANNING_PLAN_MEMORY_H_
#define STEPONE_COMPILER_PLANNING_PLAN_MEMORY_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/loops/program.h"

namespace stepone::planning {

// Arena offsets are multiples of this, so that vectors of any target are aligned and no two buffers share a cache line.
inline constexpr int64_t kAlignment = 64;

enum class Home : uint8_t {
  kInput,
  kConstant,
  kArena,   // `offset_bytes` into memory that the next run reuses
  kOutput,  // memory of its own, for each run: the caller may keep it
  kExtern,  // whatever tensor the extern call returned
  kView,
};

struct Placement {
  Home home = Home::kArena;
  int64_t offset_bytes = 0;
};

struct MemoryPlan {
  std::vector<Placement> placements;  // one per buffer of the program
  int64_t arena_bytes = 0;
  // Per buffer: the arena buffer in whose place it is written when that dies, or -1.
  std::vector<loops::BufferId> in_place_of;
  std::vector<std::vector<loops::BufferId>> free_after;  // per step: extern buffers whose last use it is
  // Per step: the overload of an extern call that writes into given memory ("aten.mm.out"), or empty.
  std::vector<std::string> out_overload;
};

struct PlanOptions {
  bool in_place = true;  // false: to see what it saves
};

// Plans a program.
//  * A temporary lives from the step that first writes it to the last step that reads it or a view of it, or a result
//    of an extern call that may share its storage. Two temporaries whose lives overlap do not overlap in the arena,
//    unless one is written in place of the other.
//  * A kernel's result is written in place of an operand that nobody reads afterwards, where the kernel allows it
//    (in_place.h) and the arena does not grow by it.
//  * Graph outputs, and whatever an output may share storage with, get memory of their own.
//  * Results of matrix products are written straight into planned memory.
// Offsets come from greedy placement by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
// Inference", 2020, section 5.2): large buffers first, each at the smallest gap that fits between those that it meets.
MemoryPlan PlanMemory(const ir::Graph& graph, const loops::Program& program, const PlanOptions& options = {});

// The out= overload that computes `op` into memory of the caller without a copy; empty when there is none.
std::string_view OutOverload(std::string_view op);

// Follows views to the buffer that owns the memory.
loops::BufferId RootOf(const loops::Program& program, loops::BufferId buffer);

}  // namespace stepone::planning

#endif  // STEPONE_COMPILER_PLANNING_PLAN_MEMORY_H_
