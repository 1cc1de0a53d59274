// Where elements of values lie once their base value is in memory: view chains as offsets and strides.
#ifndef STEPONE_COMPILER_LOOPS_LAYOUT_H_
#define STEPONE_COMPILER_LOOPS_LAYOUT_H_

#include <cstdint>
#include <optional>

#include "compiler/ir/graph.h"

namespace stepone::loops {

// Elements of a value as elements of `base`'s buffer: `offset` after its first, `strides` per dim of the value.
struct Strided {
  ir::ValueId base = ir::kNoValue;
  int64_t offset = 0;
  ir::Dims strides;
};

// The value that a chain of views starts from; the value itself if it is no view's result.
ir::ValueId BaseOf(const ir::Graph& graph, ir::ValueId value);

// The type that a value that is no view has in memory: its traced strides when they are dense and do not overlap
// (always for inputs and results of extern calls), else contiguous ones.
ir::TensorType MemoryType(const ir::Graph& graph, ir::ValueId value);

// Empty when the views between `value` and its base are no strides of the base's memory.
std::optional<Strided> StridedAccess(const ir::Graph& graph, ir::ValueId value);

// Strides of `value` when `root`, which its views lead to, has `root_strides`. REQUIRES: they do lead there.
std::optional<Strided> StridedFrom(const ir::Graph& graph, ir::ValueId value, ir::ValueId root,
                                   const ir::Dims& root_strides);

// Strides of `from` seen with `to` sizes (the same elements in row-major order), when there are some.
std::optional<ir::Dims> ReshapeStrides(const ir::Dims& from, const ir::Dims& strides, const ir::Dims& to);

// Whether the strides place the same elements at the same places (dims of size 1 do not count).
bool SameStrides(const ir::Dims& sizes, const ir::Dims& a, const ir::Dims& b);

// Whether strides reach each place of [0, elements) once.
bool IsDense(const ir::TensorType& type);

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_LAYOUT_H_
