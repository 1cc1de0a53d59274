// A fused kernel before it becomes source text: a loop nest over rows and columns with straight-line scalar bodies.
//
// A kernel iterates over `dims`. The first `num_outer` dims are the rows, the others the columns of a row. For each row
// it runs its stages in order; a row stage runs its instructions once, an element stage runs them for every column:
//
//     for row in outer:                        softmax, say:
//       for stage in stages:                     stage 0 (element)  x = load a[..]; m = reduce max x
//         row stage:      insts once             stage 1 (element)  x = load a[..]; e = exp(x - m); stash 0, e;
//         element stage:  for col in inner:                         s = reduce sum e
//                           insts                stage 2 (row)      r = 1 / s
//                                                stage 3 (element)  e = unstash 0; store out[..], e * r
//
// Instructions are in static single assignment and each belongs to one stage. An element instruction's value can be
// used in its own stage only (recompute it, or pass it on through a stash slot: one array of the row's length); a row
// instruction's value in its own and in all later stages. A reduction stands in an element stage, takes an element
// value and gives a row value, for later stages.
//
// Sums over rows ("column sums": bias gradients, norm weights' gradients) are `accumulate` instructions: a kernel that
// has any splits its rows into `shards` ranges of nearly equal length, fixed by the shape; each shard adds up in its
// own slice of a partial buffer [shards, columns...] (of [shards] when the argument is a row value), which it
// initialises itself. Another kernel adds the slices up, in order.
//
// What fusion makes of it: a pointwise kernel over one dim has that dim outer and one row stage (vector_dim 0, no
// columns); over more dims the last one is the column and what does not depend on it stands in a row stage. Work that
// depends on rows only is always in row stages; codegen need not look for it.
#ifndef STEPONE_COMPILER_LOOPS_KERNEL_H_
#define STEPONE_COMPILER_LOOPS_KERNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/types.h"

namespace stepone::loops {

using InstId = int32_t;

// coefficient * ((i_dim / divisor) % modulus); modulus 0: no remainder is taken.
struct Term {
  int64_t coefficient = 1;
  int32_t dim = 0;
  int64_t divisor = 1;
  int64_t modulus = 0;
  bool operator==(const Term&) const = default;
};

// constant + sum of terms. Sorted by dim; a plain term (no divisor, no modulus) appears once per dim.
struct IndexExpr {
  int64_t constant = 0;
  std::vector<Term> terms;
  bool operator==(const IndexExpr&) const = default;
};

// Adds value(args[arg]) * stride to an address. The value must lie in [0, bound); `wrap`: in [-bound, bound), negative
// ones count from the end. Otherwise the kernel returns STEPONE_KERNEL_INDEX_OUT_OF_RANGE and touches nothing there.
struct IndirectTerm {
  int32_t arg = 0;
  int64_t stride = 0;
  int64_t bound = 0;
  bool wrap = false;
  bool operator==(const IndirectTerm&) const = default;
};

enum class Code : uint8_t {
  kScalar,      // `op` (pointwise) of args
  kConstant,    // `number` (floats) or `integer` (integers and bool)
  kIndex,       // value of `index`, i64
  kInBounds,    // bool: low <= index < high
  kLoad,        // buffers[buffer][index + indirect terms]; with guard >= 0: only where args[guard] is true, else 0
  kStore,       // args[0] to that address; guard as for a load
  kStoreAdd,    // adds args[0] there; only in kernels with `ordered_rows`; guard as for a load
  kRandom,      // f32 in [0, 1) from (args[0]: i64 seed, stream `integer`, position `index`)
  kReduce,      // over the columns, by `op` (kSum, kProd, kMax, kMin, kAny, kAll, kArgMax, kArgMin); see above
  kAccumulate,  // over the rows, by `op` (kSum, kMax, kMin, kProd, kAny, kAll), into partial buffer `buffer`
  kStash,       // args[0] into row array `slot`
  kUnstash,     // from row array `slot`, at the same column
};

struct Inst {
  Code code = Code::kScalar;
  ir::Op op = ir::Op::kAdd;
  ir::DType type = ir::DType::kFloat32;  // of the value; of the stored value for kStore, kStash, kAccumulate
  std::vector<InstId> args;
  int32_t buffer = -1;
  IndexExpr index;
  std::vector<IndirectTerm> indirect;
  int32_t guard = -1;  // index into args
  double number = 0;
  int64_t integer = 0;
  int64_t low = 0;
  int64_t high = 0;
  int32_t slot = -1;
  bool operator==(const Inst&) const = default;
};

struct Stage {
  bool element = true;        // false: a row stage
  std::vector<InstId> insts;  // in order
};

// One argument of the kernel function.
struct KernelBuffer {
  ir::DType dtype = ir::DType::kFloat32;
  bool read = false;
  bool written = false;
  int64_t extent = 0;  // elements from the first to one past the last that may be touched
};

struct Kernel {
  std::string name;           // for people; not part of the kernel key
  std::vector<int64_t> dims;  // sizes, outer ones first, each loop nest from slow to fast
  int32_t num_outer = 0;
  // The dim along which values are vectors: usually the last one. An outer dim when memory is contiguous along rows
  // and not along columns; then row values are vectors and column loops are scalar in count. -1: no vectors.
  int32_t vector_dim = -1;
  // Rows must run in order for each column (adding into rows named by an index): the caller's threads then share out
  // the columns and not the rows.
  bool ordered_rows = false;
  int64_t shards = 0;  // > 0 exactly when there are accumulate instructions
  std::vector<KernelBuffer> buffers;
  std::vector<Inst> insts;
  std::vector<Stage> stages;
  std::vector<ir::DType> slots;  // dtype of each stash slot
  // For reports.
  std::vector<std::string> sources;
  int64_t bytes_moved = 0;
  int64_t flops = 0;
};

// Checks what codegen relies on: ids in range and defined before use, stages' visibility rules, dtypes, buffers' access
// flags, shards against accumulates, index expressions within the buffers' extents. Empty when all is well, else what
// is wrong and where.
std::string Verify(const Kernel& kernel);

// Text for people and golden tests.
std::string ToString(const Kernel& kernel);

// Everything that changes the generated code, as canonical bytes (names and reports left out).
std::string CanonicalBytes(const Kernel& kernel);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_KERNEL_H_
