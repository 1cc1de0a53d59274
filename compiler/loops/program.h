// A graph cut into steps: fused kernels and extern calls over buffers. What fusion makes, and what planning takes.
#ifndef STEPONE_COMPILER_LOOPS_PROGRAM_H_
#define STEPONE_COMPILER_LOOPS_PROGRAM_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/loops/kernel.h"

namespace stepone::loops {

using BufferId = int32_t;

struct Buffer {
  enum class Kind : uint8_t {
    kInput,      // `index`: position in the graph's inputs
    kConstant,   // `index`: position in the graph's constants
    kTemporary,  // written by steps; planning finds it a place (graph outputs are written here too)
    kExtern,     // what an extern call returns
    kView,       // elements of `base`, from `offset` elements after its first, with this buffer's own sizes and strides
  };
  Kind kind = Kind::kTemporary;
  ir::TensorType type;
  int32_t index = -1;
  BufferId base = -1;
  int64_t offset = 0;
  std::string name;
};

struct Launch {
  Kernel kernel;
  std::vector<BufferId> buffers;  // one per kernel buffer
};

// `node`: a kAten node of the graph. `operands[i]` holds operand i, `results[i]` result i (-1: nobody uses it).
struct ExternCall {
  ir::NodeId node = ir::kNoNode;
  std::vector<BufferId> operands;
  std::vector<BufferId> results;
};

struct DrawSeed {
  BufferId buffer = -1;
};

using Step = std::variant<Launch, ExternCall, DrawSeed>;

// How two groups of nodes came to be one kernel or not.
struct FusionDecision {
  std::string first;
  std::string second;
  double score_bytes = 0;
  bool taken = false;
  std::string reason;
};

struct ProgramOutput {
  BufferId buffer = -1;  // -1: `number`, or None when that is empty
  std::optional<int64_t> number;
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Step> steps;  // in an order that respects all data flow and effects
  std::vector<ProgramOutput> outputs;
  std::vector<FusionDecision> decisions;
  // What could not be lowered, which is a bug here; empty when all is well. The program is not complete then.
  std::string error;
};

// Kernel boundaries and loop nests for a decomposed graph.
// `disable_fusion`: one kernel per pointwise or reduction node.
struct FuseOptions {
  bool disable_fusion = false;
  int64_t l1d_bytes = 32 << 10;
  int64_t l2_bytes = 512 << 10;
  int64_t vector_bytes = 32;
};
Program Fuse(const ir::Graph& graph, const FuseOptions& options);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_PROGRAM_H_
