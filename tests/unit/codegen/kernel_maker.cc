#include "tests/unit/codegen/kernel_maker.h"

#include <utility>

namespace stepone::codegen {

using loops::Code;
using loops::Inst;

loops::IndexExpr Index(std::initializer_list<int64_t> coefficients, int64_t constant) {
  loops::IndexExpr index;
  index.constant = constant;
  int32_t dim = 0;
  for (int64_t coefficient : coefficients) {
    if (coefficient != 0) index.terms.push_back({.coefficient = coefficient, .dim = dim});
    ++dim;
  }
  return index;
}

KernelMaker::KernelMaker(std::vector<int64_t> dims, int32_t num_outer, int32_t vector_dim) {
  kernel.dims = std::move(dims);
  kernel.num_outer = num_outer;
  kernel.vector_dim = vector_dim;
}

int32_t KernelMaker::Buffer(ir::DType type, int64_t extent, bool read, bool written) {
  kernel.buffers.push_back({.dtype = type, .read = read, .written = written, .extent = extent});
  return static_cast<int32_t>(kernel.buffers.size()) - 1;
}

Id KernelMaker::Add(Inst inst) {
  kernel.insts.push_back(std::move(inst));
  const Id id = static_cast<Id>(kernel.insts.size()) - 1;
  kernel.stages.back().insts.push_back(id);
  return id;
}

Id KernelMaker::Load(int32_t buffer, loops::IndexExpr index, Id guard) {
  Inst inst;
  inst.code = Code::kLoad;
  inst.type = kernel.buffers[buffer].dtype;
  inst.buffer = buffer;
  inst.index = std::move(index);
  if (guard >= 0) {
    inst.args = {guard};
    inst.guard = 0;
  }
  return Add(inst);
}

Id KernelMaker::Take(int32_t buffer, loops::IndexExpr index, Id position, int64_t stride, int64_t bound, bool wrap,
                     Id guard) {
  Inst inst;
  inst.code = Code::kLoad;
  inst.type = kernel.buffers[buffer].dtype;
  inst.buffer = buffer;
  inst.index = std::move(index);
  inst.args = {position};
  inst.indirect = {{.arg = 0, .stride = stride, .bound = bound, .wrap = wrap}};
  if (guard >= 0) {
    inst.args.push_back(guard);
    inst.guard = 1;
  }
  return Add(inst);
}

void KernelMaker::Store(int32_t buffer, loops::IndexExpr index, Id value, Id guard) {
  Inst inst;
  inst.code = Code::kStore;
  inst.type = kernel.buffers[buffer].dtype;
  inst.buffer = buffer;
  inst.index = std::move(index);
  inst.args = {value};
  if (guard >= 0) {
    inst.args.push_back(guard);
    inst.guard = 1;
  }
  Add(inst);
}

Id KernelMaker::Op(ir::Op op, ir::DType type, std::vector<Id> args) {
  Inst inst;
  inst.code = Code::kScalar;
  inst.op = op;
  inst.type = type;
  inst.args = std::move(args);
  return Add(inst);
}

Id KernelMaker::Number(double value, ir::DType type) {
  Inst inst;
  inst.code = Code::kConstant;
  inst.type = type;
  inst.number = value;
  return Add(inst);
}

Id KernelMaker::Integer(int64_t value, ir::DType type) {
  Inst inst;
  inst.code = Code::kConstant;
  inst.type = type;
  inst.integer = value;
  return Add(inst);
}

Id KernelMaker::Reduce(ir::Op op, Id x) {
  Inst inst;
  inst.code = Code::kReduce;
  inst.op = op;
  const bool position = op == ir::Op::kArgMax || op == ir::Op::kArgMin;
  inst.type = position ? ir::DType::kInt64 : kernel.insts[x].type;
  inst.args = {x};
  return Add(inst);
}

void KernelMaker::Accumulate(ir::Op op, int32_t buffer, Id x) {
  Inst inst;
  inst.code = Code::kAccumulate;
  inst.op = op;
  inst.type = kernel.insts[x].type;
  inst.args = {x};
  inst.buffer = buffer;
  Add(inst);
}

void KernelMaker::Stash(int32_t slot, Id x) {
  Inst inst;
  inst.code = Code::kStash;
  inst.type = kernel.insts[x].type;
  inst.args = {x};
  inst.slot = slot;
  Add(inst);
}

Id KernelMaker::Unstash(int32_t slot) {
  Inst inst;
  inst.code = Code::kUnstash;
  inst.type = kernel.slots[slot];
  inst.slot = slot;
  return Add(inst);
}

}  // namespace stepone::codegen
