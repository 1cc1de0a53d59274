// Index expressions as C text, for the lanes of a vector.
#ifndef STEPONE_COMPILER_CODEGEN_LANE_INDEX_H_
#define STEPONE_COMPILER_CODEGEN_LANE_INDEX_H_

#include <cstdint>
#include <string>

#include "compiler/codegen/schedule.h"
#include "compiler/ir/types.h"
#include "compiler/loops/kernel.h"

namespace stepone::codegen {

// Lane l has the index  base + l * stride + extra[l].  `i<d>` is the variable of dim d; that of the lane dim is the
// index of lane 0 and a multiple of the number of lanes.
struct LaneIndex {
  std::string base;  // an expression of type long
  int64_t stride = 0;
  std::string extra;  // a vi, or a vl if extra_wide; empty: zeros
  bool extra_wide = false;
  int64_t extra_reach = 0;  // largest magnitude of an element of extra

  bool uniform() const { return stride == 0 && extra.empty(); }
  // All W indices as a vl, or a vi if `narrow`. REQUIRES for narrow: they fit.
  std::string Vector(bool narrow) const;
  // l * stride + extra[l] only.
  std::string Offsets(bool narrow) const;
};

LaneIndex IndexOfLanes(const loops::IndexExpr& expr, const Schedule& schedule, const ir::Dims& dims);

}  // namespace stepone::codegen

#endif  // STEPONE_COMPILER_CODEGEN_LANE_INDEX_H_
