// Tensors over memory that is not ATen's: arena buffers, plan outputs, views.
#ifndef STEPONE_CLIENT_TENSOR_MEMORY_H_
#define STEPONE_CLIENT_TENSOR_MEMORY_H_

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "client/plan.h"

namespace stepone::client {

// A CPU tensor with the buffer's sizes and strides over `data`, which it does not own and which must outlive each use.
at::Tensor BorrowTensor(const Buffer& buffer, void* data);

// A CPU tensor with the buffer's sizes and strides in a block of OutputPool::Global(), contents undefined. The block
// returns to the pool when the last tensor that shares the storage is gone. Throws when there is no memory.
at::Tensor NewOutput(const Buffer& buffer);

// A tensor that shares the storage of `base`, `offset` elements after its first one. It is no differentiable view.
at::Tensor ViewTensor(const at::Tensor& base, const Buffer& buffer, int64_t offset);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_TENSOR_MEMORY_H_
