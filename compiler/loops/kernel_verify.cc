// Checks of a kernel: everything that codegen relies on and does not check again.
#include <string>
#include <vector>

#include "compiler/loops/index_expr.h"
#include "compiler/loops/kernel.h"
#include "proto/str_cat.h"

namespace stepone::loops {
namespace {

using ir::DType;
using ir::Op;

bool IsComparison(Op op) {
  return op == Op::kEq || op == Op::kNe || op == Op::kLt || op == Op::kLe || op == Op::kGt || op == Op::kGe;
}

bool IsStoring(Code code) {
  return code == Code::kStore || code == Code::kStoreAdd || code == Code::kAccumulate || code == Code::kStash;
}

class Verifier {
 public:
  explicit Verifier(const Kernel& kernel) : kernel_(kernel), stage_of_(kernel.insts.size(), -1) {}

  std::string Run() {
    CheckShape();
    if (!error_.empty()) return error_;
    int64_t accumulates = 0;
    for (size_t s = 0; s < kernel_.stages.size() && error_.empty(); ++s) {
      for (InstId id : kernel_.stages[s].insts) {
        if (id < 0 || id >= static_cast<InstId>(kernel_.insts.size()))
          return StrCat("stage ", s, ": no instruction ", id);
        if (stage_of_[id] >= 0) return StrCat("instruction ", id, " stands twice");
        at_ = id;
        stage_ = static_cast<int32_t>(s);
        CheckInst(kernel_.insts[id]);
        if (!error_.empty()) return error_;
        stage_of_[id] = stage_;
        accumulates += kernel_.insts[id].code == Code::kAccumulate;
      }
    }
    for (size_t id = 0; id < stage_of_.size(); ++id) {
      if (stage_of_[id] < 0) return StrCat("instruction ", id, " stands in no stage");
    }
    if ((kernel_.shards > 0) != (accumulates > 0)) return "shards do not fit the accumulates";
    return error_;
  }

 private:
  template <typename... Parts>
  void Fail(const Parts&... parts) {
    if (error_.empty()) error_ = StrCat("instruction ", at_, " of stage ", stage_, ": ", parts...);
  }

  bool InElementStage() const { return kernel_.stages[stage_].element; }

  void CheckShape() {
    if (kernel_.dims.empty()) error_ = "no dims";
    for (int64_t size : kernel_.dims) {
      if (size < 1) error_ = StrCat("dim of size ", size);
    }
    const int32_t rank = static_cast<int32_t>(kernel_.dims.size());
    if (kernel_.num_outer < 0 || kernel_.num_outer > rank) error_ = "num_outer out of range";
    if (kernel_.vector_dim < -1 || kernel_.vector_dim >= rank) error_ = "vector_dim out of range";
    for (const KernelBuffer& buffer : kernel_.buffers) {
      if (!ir::IsFusable(buffer.dtype)) error_ = "a buffer's dtype is not for kernels";
      if (!buffer.read && !buffer.written) error_ = "a buffer is not used";
    }
  }

  void CheckArgs(const Inst& inst) {
    for (InstId arg : inst.args) {
      if (arg < 0 || arg >= static_cast<InstId>(kernel_.insts.size()) || stage_of_[arg] < 0) {
        return Fail("argument ", arg, " is not defined before");
      }
      const Inst& from = kernel_.insts[arg];
      if (IsStoring(from.code)) return Fail("argument ", arg, " has no value");
      const bool row = from.code == Code::kReduce || !kernel_.stages[stage_of_[arg]].element;
      if (from.code == Code::kReduce && stage_of_[arg] >= stage_) return Fail("argument ", arg, " is not reduced yet");
      if (!row && stage_of_[arg] != stage_) return Fail("argument ", arg, " belongs to element stage ", stage_of_[arg]);
    }
  }

  DType ArgType(const Inst& inst, size_t i) const { return kernel_.insts[inst.args[i]].type; }

  bool NeedArgs(const Inst& inst, size_t count) {
    if (inst.args.size() != count) Fail("has ", inst.args.size(), " arguments instead of ", count);
    return error_.empty();
  }

  void CheckIndex(const IndexExpr& expr) {
    for (size_t i = 0; i < expr.terms.size(); ++i) {
      const Term& term = expr.terms[i];
      if (term.dim < 0 || term.dim >= static_cast<int32_t>(kernel_.dims.size())) return Fail("no dim ", term.dim);
      if (term.divisor < 1 || term.modulus < 0 || term.coefficient == 0) return Fail("bad term");
      if (i > 0 && term.dim < expr.terms[i - 1].dim) return Fail("terms are not sorted");
      if (!InElementStage() && term.dim >= kernel_.num_outer)
        return Fail("a row instruction uses column dim ", term.dim);
    }
  }

  void CheckAddress(const Inst& inst, bool write) {
    if (inst.buffer < 0 || inst.buffer >= static_cast<int32_t>(kernel_.buffers.size())) return Fail("no buffer");
    const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
    if (write ? !buffer.written : !buffer.read) return Fail("buffer b", inst.buffer, " lacks the access flag");
    if (buffer.dtype != inst.type) return Fail("type is not that of b", inst.buffer);
    CheckIndex(inst.index);
    if (!error_.empty()) return;
    Range range = RangeOf(inst.index, kernel_.dims);
    for (const IndirectTerm& term : inst.indirect) {
      if (term.arg < 0 || term.arg >= static_cast<int32_t>(inst.args.size())) return Fail("indirect argument missing");
      const DType type = ArgType(inst, term.arg);
      if (type != DType::kInt64 && type != DType::kInt32) return Fail("an indirect index is no i64 or i32");
      if (term.bound < 1) return Fail("indirect bound below 1");
      const int64_t end = term.stride * (term.bound - 1);
      (end < 0 ? range.low : range.high) += end;
    }
    if (inst.guard >= 0) {
      if (inst.guard >= static_cast<int32_t>(inst.args.size())) return Fail("guard argument missing");
      if (ArgType(inst, inst.guard) != DType::kBool) return Fail("guard is no bool");
      return;  // what the guard keeps away cannot be told from here
    }
    if (range.low < 0 || range.high >= buffer.extent) {
      Fail("index [", range.low, ", ", range.high, "] leaves b", inst.buffer, " of extent ", buffer.extent);
    }
  }

  void CheckScalar(const Inst& inst) {
    const int operands = ir::NumOperands(inst.op);
    if (ir::KindOf(inst.op) != ir::OpKind::kPointwise) return Fail("not a pointwise op");
    if (!NeedArgs(inst, operands)) return;
    if (inst.op == Op::kCast) return;
    if (inst.op == Op::kIsNan) {
      if (inst.type != DType::kBool) Fail("isnan gives bool");
    } else if (IsComparison(inst.op)) {
      if (inst.type != DType::kBool || ArgType(inst, 0) != ArgType(inst, 1)) Fail("comparison of mixed types");
    } else if (inst.op == Op::kWhere) {
      if (ArgType(inst, 0) != DType::kBool || ArgType(inst, 1) != inst.type || ArgType(inst, 2) != inst.type) {
        Fail("where with mixed types");
      }
    } else {
      for (int i = 0; i < operands; ++i) {
        if (ArgType(inst, i) != inst.type) Fail(ir::Name(inst.op), " with mixed types");
      }
    }
  }

  void CheckAccumulate(const Inst& inst) {
    if (!NeedArgs(inst, 1)) return;
    if (ArgType(inst, 0) != inst.type) return Fail("accumulate of another type");
    if (inst.buffer < 0 || inst.buffer >= static_cast<int32_t>(kernel_.buffers.size())) return Fail("no buffer");
    const KernelBuffer& buffer = kernel_.buffers[inst.buffer];
    if (!buffer.written || buffer.dtype != inst.type) return Fail("partial buffer's flags or type");
    if (kernel_.ordered_rows) return Fail("accumulate in ordered rows");
    int64_t extent = kernel_.shards;
    if (InElementStage()) {
      for (size_t d = kernel_.num_outer; d < kernel_.dims.size(); ++d) extent *= kernel_.dims[d];
    }
    if (buffer.extent != extent) Fail("partial buffer has ", buffer.extent, " elements instead of ", extent);
  }

  void CheckSlot(const Inst& inst) {
    if (!InElementStage()) return Fail("stash in a row stage");
    if (inst.slot < 0 || inst.slot >= static_cast<int32_t>(kernel_.slots.size())) return Fail("no slot");
    if (kernel_.slots[inst.slot] != inst.type) Fail("slot of another type");
  }

  void CheckInst(const Inst& inst) {
    CheckArgs(inst);
    if (!error_.empty()) return;
    switch (inst.code) {
      case Code::kScalar:
        return CheckScalar(inst);
      case Code::kConstant:
        NeedArgs(inst, 0);
        return;
      case Code::kIndex:
        if (inst.type != DType::kInt64) Fail("index is no i64");
        return CheckIndex(inst.index);
      case Code::kInBounds:
        if (inst.type != DType::kBool) Fail("in_bounds is no bool");
        return CheckIndex(inst.index);
      case Code::kLoad:
        return CheckAddress(inst, false);
      case Code::kStore:
      case Code::kStoreAdd:
        if (inst.args.empty() || ArgType(inst, 0) != inst.type) return Fail("stored value's type");
        if (inst.code == Code::kStoreAdd && !kernel_.ordered_rows) return Fail("store_add without ordered rows");
        return CheckAddress(inst, true);
      case Code::kRandom:
        if (!NeedArgs(inst, 1)) return;
        if (inst.type != DType::kFloat32 || ArgType(inst, 0) != DType::kInt64) return Fail("random's types");
        return CheckIndex(inst.index);
      case Code::kReduce: {
        if (!InElementStage()) return Fail("reduce in a row stage");
        if (kernel_.ordered_rows) return Fail("reduce in ordered rows");
        if (!NeedArgs(inst, 1)) return;
        const bool position = inst.op == Op::kArgMax || inst.op == Op::kArgMin;
        if (ir::KindOf(inst.op) != ir::OpKind::kReduction) return Fail("not a reduction op");
        if (position ? inst.type != DType::kInt64 : inst.type != ArgType(inst, 0)) Fail("reduce's type");
        return;
      }
      case Code::kAccumulate:
        return CheckAccumulate(inst);
      case Code::kStash:
        if (!NeedArgs(inst, 1)) return;
        if (ArgType(inst, 0) != inst.type) return Fail("stash of another type");
        CheckSlot(inst);
        if (error_.empty()) stashed_.push_back(inst.slot);
        return;
      case Code::kUnstash:
        CheckSlot(inst);
        for (int32_t slot : stashed_) {
          if (slot == inst.slot) return;
        }
        return Fail("unstash of an empty slot");
    }
  }

  const Kernel& kernel_;
  std::vector<int32_t> stage_of_;
  std::vector<int32_t> stashed_;
  std::string error_;
  InstId at_ = -1;
  int32_t stage_ = -1;
};

}  // namespace

std::string Verify(const Kernel& kernel) { return Verifier(kernel).Run(); }

}  // namespace stepone::loops
