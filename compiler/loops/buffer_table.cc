#include "compiler/loops/buffer_table.h"

#include <optional>
#include <utility>

#include "compiler/loops/layout.h"

namespace stepone::loops {

using ir::ValueId;

BufferTable::BufferTable(const ir::Graph& graph, Program& program)
    : graph_(graph), program_(program), of_(graph.num_values(), -1) {
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const ValueId value = graph.inputs[i];
    if (value == ir::kNoValue || of_[value] >= 0) continue;
    of_[value] =
        Add(Buffer{Buffer::Kind::kInput, graph.type(value), static_cast<int32_t>(i), -1, 0, graph.value(value).name});
  }
  for (size_t i = 0; i < graph.constants.size(); ++i) {
    const ValueId value = graph.constants[i].value;
    const ir::TensorType type = MemoryType(graph, value);
    of_[value] = Add(Buffer{Buffer::Kind::kConstant, type, static_cast<int32_t>(i), -1, 0, graph.value(value).name});
  }
}

BufferId BufferTable::Add(Buffer buffer) {
  program_.buffers.push_back(std::move(buffer));
  return static_cast<BufferId>(program_.buffers.size()) - 1;
}

BufferId BufferTable::AddTemporary(ir::TensorType type, std::string name) {
  return Add(Buffer{Buffer::Kind::kTemporary, std::move(type), -1, -1, 0, std::move(name)});
}

void BufferTable::SetSizes(BufferId id, ir::Dims sizes) {
  ir::TensorType& type = program_.buffers[id].type;
  type = ir::Contiguous(type.dtype, std::move(sizes));
}

BufferId BufferTable::Of(ValueId value) {
  if (of_[value] >= 0) return of_[value];
  const ValueId base = BaseOf(graph_, value);
  const ir::Value& v = graph_.value(value);
  if (base == value) {
    const bool external = v.producer != ir::kNoNode && graph_.node(v.producer).op == ir::Op::kAten;
    Buffer buffer;
    buffer.kind = external ? Buffer::Kind::kExtern : Buffer::Kind::kTemporary;
    buffer.type = MemoryType(graph_, value);
    buffer.name = v.name;
    return of_[value] = Add(std::move(buffer));
  }
  const BufferId of_base = Of(base);
  // Normalize sees to it that views which must be in memory are strides.
  const std::optional<Strided> access = StridedAccess(graph_, value);
  Buffer buffer{Buffer::Kind::kView, v.type, -1, of_base, access ? access->offset : 0, v.name};
  if (access) buffer.type.strides = access->strides;
  const ir::TensorType& whole = program_.buffers[of_base].type;
  if (buffer.offset == 0 && whole.sizes == buffer.type.sizes && whole.dtype == buffer.type.dtype &&
      SameStrides(whole.sizes, whole.strides, buffer.type.strides)) {
    return of_[value] = of_base;
  }
  return of_[value] = Add(std::move(buffer));
}

}  // namespace stepone::loops
