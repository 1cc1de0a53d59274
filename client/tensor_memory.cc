#include "client/tensor_memory.h"

#include <utility>

#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/Exception.h>

#include "client/aten_call.h"
#include "client/output_pool.h"

namespace stepone::client {
namespace {

void ReleaseBlock(void* context) {
  auto* block = static_cast<OutputPool::Block*>(context);
  OutputPool::Global().Release(*block);
  delete block;
}

// ATen's view of the pool, so that a storage of ours can be resized like any other.
class PoolAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const OutputPool::Block block = OutputPool::Global().Allocate(bytes);
    TORCH_CHECK_WITH(OutOfMemoryError, block.data != nullptr || bytes == 0, "stepone: no memory for ", bytes, " bytes");
    return c10::DataPtr(block.data, new OutputPool::Block(block), &ReleaseBlock, c10::Device(c10::kCPU));
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    default_copy_data(destination, source, bytes);
  }
};

PoolAllocator& GlobalAllocator() {
  static PoolAllocator& allocator = *new PoolAllocator;
  return allocator;
}

caffe2::TypeMeta TypeOf(const Buffer& buffer) { return c10::scalarTypeToTypeMeta(ToScalarType(buffer.dtype)); }

at::Tensor Make(c10::Storage storage, const Buffer& buffer) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), TypeOf(buffer));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(buffer.sizes, buffer.strides);
  return tensor;
}

}  // namespace

at::Tensor BorrowTensor(const Buffer& buffer, void* data) {
  const auto bytes = static_cast<size_t>(SpanElements(buffer) * ItemSize(buffer.dtype));
  return Make(c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, c10::Device(c10::kCPU)),
                           /*allocator=*/nullptr, /*resizable=*/false),
              buffer);
}

at::Tensor NewOutput(const Buffer& buffer) {
  const auto bytes = static_cast<size_t>(SpanElements(buffer) * ItemSize(buffer.dtype));
  PoolAllocator& allocator = GlobalAllocator();
  return Make(c10::Storage(c10::Storage::use_byte_size_t(), bytes, allocator.allocate(bytes), &allocator,
                           /*resizable=*/true),
              buffer);
}

at::Tensor ViewTensor(const at::Tensor& base, const Buffer& buffer, int64_t offset) {
  // The base's keys, not the backend's alone: this constructor adds none, and a tensor without those of autograd passes
  // for one made in inference mode, which no later forward may save.
  at::Tensor view = at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base.storage()),
                                                             base.key_set(), TypeOf(buffer));
  view.unsafeGetTensorImpl()->set_storage_offset(base.storage_offset() + offset);
  view.unsafeGetTensorImpl()->set_sizes_and_strides(buffer.sizes, buffer.strides);
  return view;
}

}  // namespace stepone::client
