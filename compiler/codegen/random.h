// The random numbers of kernels, as a scalar reference: what generated code computes, bit for bit.
//
// A number is a pure function of (seed, stream, position): Philox2x32 with 7 rounds (Salmon, Moraes, Dror, Shaw:
// "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011), the fewest that pass all of TestU01's SmallCrush, Crush and
// BigCrush in that paper. The key and half of the counter come from seed and stream through SplitMix64's finaliser.
// A counter gives two words; positions p and p + 8 of an aligned group of 16 share one, so that code for vectors of 8
// can use both.
#ifndef STEPONE_COMPILER_CODEGEN_RANDOM_H_
#define STEPONE_COMPILER_CODEGEN_RANDOM_H_

#include <cstdint>

namespace stepone::codegen {

// In [0, 1): a multiple of 2^-24. REQUIRES: position >= 0.
float RandomUniform(int64_t seed, int64_t stream, int64_t position);

}  // namespace stepone::codegen

#endif  // STEPONE_COMPILER_CODEGEN_RANDOM_H_
