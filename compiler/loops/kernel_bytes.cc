// Canonical bytes of a kernel: what its key is computed from. Any change to what is written here needs a new version.
#include <bit>
#include <cstdint>
#include <string>

#include "compiler/loops/kernel.h"

namespace stepone::loops {
namespace {

constexpr char kVersion = 1;

class Writer {
 public:
  void Int(int64_t value) {
    uint64_t rest = (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
    while (rest >= 0x80) {
      bytes_.push_back(static_cast<char>(rest | 0x80));
      rest >>= 7;
    }
    bytes_.push_back(static_cast<char>(rest));
  }
  // Bit pattern, so that -0.0 and NaN payloads count.
  void Double(double value) { Int(std::bit_cast<int64_t>(value)); }
  void Byte(char value) { bytes_.push_back(value); }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

void Write(const IndexExpr& expr, Writer& out) {
  out.Int(expr.constant);
  out.Int(static_cast<int64_t>(expr.terms.size()));
  for (const Term& term : expr.terms) {
    out.Int(term.coefficient);
    out.Int(term.dim);
    out.Int(term.divisor);
    out.Int(term.modulus);
  }
}

void Write(const Inst& inst, Writer& out) {
  out.Int(static_cast<int64_t>(inst.code));
  out.Int(static_cast<int64_t>(inst.op));
  out.Int(static_cast<int64_t>(inst.type));
  out.Int(static_cast<int64_t>(inst.args.size()));
  for (InstId arg : inst.args) out.Int(arg);
  out.Int(inst.buffer);
  Write(inst.index, out);
  out.Int(static_cast<int64_t>(inst.indirect.size()));
  for (const IndirectTerm& term : inst.indirect) {
    out.Int(term.arg);
    out.Int(term.stride);
    out.Int(term.bound);
    out.Int(term.wrap ? 1 : 0);
  }
  out.Int(inst.guard);
  out.Double(inst.number);
  out.Int(inst.integer);
  out.Int(inst.low);
  out.Int(inst.high);
  out.Int(inst.slot);
}

}  // namespace

std::string CanonicalBytes(const Kernel& kernel) {
  Writer out;
  out.Byte(kVersion);
  out.Int(static_cast<int64_t>(kernel.dims.size()));
  for (int64_t size : kernel.dims) out.Int(size);
  out.Int(kernel.num_outer);
  out.Int(kernel.vector_dim);
  out.Int(kernel.ordered_rows ? 1 : 0);
  out.Int(kernel.shards);
  out.Int(static_cast<int64_t>(kernel.buffers.size()));
  for (const KernelBuffer& buffer : kernel.buffers) {
    out.Int(static_cast<int64_t>(buffer.dtype));
    out.Int((buffer.read ? 1 : 0) + (buffer.written ? 2 : 0));
    out.Int(buffer.extent);
  }
  out.Int(static_cast<int64_t>(kernel.insts.size()));
  for (const Inst& inst : kernel.insts) Write(inst, out);
  out.Int(static_cast<int64_t>(kernel.stages.size()));
  for (const Stage& stage : kernel.stages) {
    out.Int(stage.element ? 1 : 0);
    out.Int(static_cast<int64_t>(stage.insts.size()));
    for (InstId id : stage.insts) out.Int(id);
  }
  out.Int(static_cast<int64_t>(kernel.slots.size()));
  for (ir::DType dtype : kernel.slots) out.Int(static_cast<int64_t>(dtype));
  return out.Take();
}

}  // namespace stepone::loops
