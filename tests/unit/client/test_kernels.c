// Kernels for executor tests, built the way that the compiler builds its own: no libraries, no start-up code.
#include <stdint.h>

#include "proto/kernel_abi.h"

#define EXPORT __attribute__((visibility("default")))

// out[i] = a[i] + b[i]
EXPORT int32_t add_f32(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end) {
  const float* a = buffers[0];
  const float* b = buffers[1];
  float* out = buffers[2];
  for (int64_t i = begin; i < end; ++i) out[i] = a[i] + b[i];
  return STEPONE_KERNEL_OK;
}

// out[i] = 2 * a[i]
EXPORT int32_t double_f32(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end) {
  const float* a = buffers[0];
  float* out = buffers[1];
  for (int64_t i = begin; i < end; ++i) out[i] = 2.0f * a[i];
  return STEPONE_KERNEL_OK;
}

// a[i] += 1, in place
EXPORT int32_t increment_f32(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end) {
  float* a = buffers[0];
  for (int64_t i = begin; i < end; ++i) a[i] += 1.0f;
  return STEPONE_KERNEL_OK;
}

// out[i] = table[index[i]] of a table of 4
EXPORT int32_t gather_f32(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end) {
  const float* table = buffers[0];
  const int64_t* index = buffers[1];
  float* out = buffers[2];
  for (int64_t i = begin; i < end; ++i) {
    if (index[i] < 0 || index[i] >= 4) return STEPONE_KERNEL_INDEX_OUT_OF_RANGE;
    out[i] = table[index[i]];
  }
  return STEPONE_KERNEL_OK;
}

EXPORT int32_t divide_i64(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end) {
  const int64_t* a = buffers[0];
  const int64_t* b = buffers[1];
  int64_t* out = buffers[2];
  for (int64_t i = begin; i < end; ++i) {
    if (b[i] == 0) return STEPONE_KERNEL_DIVISION_BY_ZERO;
    out[i] = a[i] / b[i];
  }
  return STEPONE_KERNEL_OK;
}

// out[0] = seed[0]
EXPORT int32_t copy_i64(void* const* buffers, const int64_t* sizes, int64_t begin, int64_t end) {
  const int64_t* in = buffers[0];
  int64_t* out = buffers[1];
  for (int64_t i = begin; i < end; ++i) out[i] = in[i];
  return STEPONE_KERNEL_OK;
}
