/* The C interface between a compiled CPU kernel and the program that runs it.
 *
 * A kernel is a function of a shared library that depends on nothing: no libc, libm, OpenMP or start-up code. It owns
 * no memory and keeps no state, so any number of threads may run it at once on disjoint unit ranges. The caller splits
 * [0, units) into ranges and runs them in any order and on any threads; the result does not depend on the split.
 */
#ifndef STEPONE_PROTO_KERNEL_ABI_H_
#define STEPONE_PROTO_KERNEL_ABI_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever a kernel built for the old number could misbehave under the new one. */
#define STEPONE_KERNEL_ABI_VERSION 1

/* What a kernel returns. Anything but OK leaves the contents of its output buffers undefined. */
enum stepone_kernel_status {
  STEPONE_KERNEL_OK = 0,
  STEPONE_KERNEL_INDEX_OUT_OF_RANGE = 1, /* an index read from a tensor lies outside of its dimension */
  STEPONE_KERNEL_DIVISION_BY_ZERO = 2    /* integer division or remainder by zero */
};

/* Computes units [begin, end).
 *
 * buffers: one pointer per kernel argument, to the tensor's first element (its storage offset is already added).
 *          Pointers of different arguments do not overlap unless the plan says that two arguments are one buffer.
 * sizes:   values of the symbols that the kernel was compiled with, in the kernel's order; NULL when it has none.
 */
typedef int32_t (*stepone_kernel_fn)(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end);

#ifdef __cplusplus
}
#endif

#endif /* STEPONE_PROTO_KERNEL_ABI_H_ */
