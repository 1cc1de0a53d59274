// Writes kernels down in tests.
#ifndef STEPONE_TESTS_UNIT_CODEGEN_KERNEL_MAKER_H_
#define STEPONE_TESTS_UNIT_CODEGEN_KERNEL_MAKER_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "compiler/loops/kernel.h"

namespace stepone::codegen {

using Id = loops::InstId;
inline constexpr ir::DType kF32 = ir::DType::kFloat32;

// {c0, c1, ...}: c0 * i0 + c1 * i1 + ..., plus a constant.
loops::IndexExpr Index(std::initializer_list<int64_t> coefficients, int64_t constant = 0);

// Adds instructions to the stage that was opened last. Not thread-safe.
class KernelMaker {
 public:
  KernelMaker(std::vector<int64_t> dims, int32_t num_outer, int32_t vector_dim);

  int32_t Buffer(ir::DType type, int64_t extent, bool read, bool written);
  int32_t In(ir::DType type, int64_t extent) { return Buffer(type, extent, true, false); }
  int32_t Out(ir::DType type, int64_t extent) { return Buffer(type, extent, false, true); }

  void Element() { kernel.stages.push_back({.element = true, .insts = {}}); }
  void Row() { kernel.stages.push_back({.element = false, .insts = {}}); }

  Id Add(loops::Inst inst);
  Id Load(int32_t buffer, loops::IndexExpr index, Id guard = -1);
  Id Take(int32_t buffer, loops::IndexExpr index, Id position, int64_t stride, int64_t bound, bool wrap = false,
          Id guard = -1);
  void Store(int32_t buffer, loops::IndexExpr index, Id value, Id guard = -1);
  Id Op(ir::Op op, const std::vector<Id>& args) { return Op(op, kernel.insts[args.back()].type, args); }
  Id Op(ir::Op op, ir::DType type, std::vector<Id> args);
  Id Cast(ir::DType type, Id x) { return Op(ir::Op::kCast, type, {x}); }
  Id Number(double value, ir::DType type = kF32);
  Id Integer(int64_t value, ir::DType type);
  Id Reduce(ir::Op op, Id x);
  void Accumulate(ir::Op op, int32_t buffer, Id x);
  void Stash(int32_t slot, Id x);
  Id Unstash(int32_t slot);

  loops::Kernel kernel;
};

}  // namespace stepone::codegen

#endif  // STEPONE_TESTS_UNIT_CODEGEN_KERNEL_MAKER_H_
