// Whether a kernel may write a result into the memory of one of its operands.
#ifndef STEPONE_COMPILER_PLANNING_IN_PLACE_H_
#define STEPONE_COMPILER_PLANNING_IN_PLACE_H_

#include <cstdint>

#include "compiler/loops/kernel.h"

namespace stepone::planning {

// Whether argument `output` of the kernel may be the same memory as its argument `input`, for every order in which rows
// and columns may run. So it is when
//  * both have the same dtype, and nothing else is done to `output` than one store without a guard,
//  * that store has a place of its own for each row and column,
//  * `input` is only loaded from, always at the place that the store writes, and never after it.
// A point of the iteration then reads its element before it overwrites it, and no other point ever looks there.
bool MayWriteInPlace(const loops::Kernel& kernel, int32_t output, int32_t input);

}  // namespace stepone::planning

#endif  // STEPONE_COMPILER_PLANNING_IN_PLACE_H_
