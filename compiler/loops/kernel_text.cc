// Text of a kernel, for people and golden tests.
#include <string>

#include "absl/strings/str_join.h"
#include "compiler/loops/index_expr.h"
#include "compiler/loops/kernel.h"
#include "proto/str_cat.h"

namespace stepone::loops {
namespace {

template <typename... T>
void Append(std::string* out, const T&... parts) {
  *out += StrCat(parts...);
}

std::string_view CodeName(Code code) {
  switch (code) {
    case Code::kScalar:
      return "scalar";
    case Code::kConstant:
      return "const";
    case Code::kIndex:
      return "index";
    case Code::kInBounds:
      return "in_bounds";
    case Code::kLoad:
      return "load";
    case Code::kStore:
      return "store";
    case Code::kStoreAdd:
      return "store_add";
    case Code::kRandom:
      return "random";
    case Code::kReduce:
      return "reduce";
    case Code::kAccumulate:
      return "accumulate";
    case Code::kStash:
      return "stash";
    case Code::kUnstash:
      return "unstash";
  }
  return "unknown";
}

std::string Value(InstId id) { return StrCat("%", id); }

std::string Address(const Inst& inst) {
  std::string text = StrCat("b", inst.buffer, "[", ToString(inst.index));
  for (const IndirectTerm& term : inst.indirect) {
    Append(&text, " + ", term.stride, "*", Value(inst.args[term.arg]), "<", term.bound, term.wrap ? " wrap" : "", ">");
  }
  text += "]";
  if (inst.guard >= 0) Append(&text, " if ", Value(inst.args[inst.guard]));
  return text;
}

std::string Arguments(const Inst& inst) {
  return absl::StrJoin(inst.args, ", ", [](std::string* out, InstId id) { Append(out, Value(id)); });
}

std::string InstText(const Inst& inst, InstId id) {
  const std::string head = StrCat(Value(id), ": ", ir::Name(inst.type), " = ");
  switch (inst.code) {
    case Code::kScalar:
      return StrCat(head, ir::Name(inst.op), " ", Arguments(inst));
    case Code::kConstant:
      return ir::IsFloat(inst.type) ? StrCat(head, "const ", inst.number) : StrCat(head, "const ", inst.integer);
    case Code::kIndex:
      return StrCat(head, "index ", ToString(inst.index));
    case Code::kInBounds:
      return StrCat(head, "in_bounds ", inst.low, " <= ", ToString(inst.index), " < ", inst.high);
    case Code::kLoad:
      return StrCat(head, "load ", Address(inst));
    case Code::kStore:
    case Code::kStoreAdd:
      return StrCat(CodeName(inst.code), " ", Address(inst), ", ", Value(inst.args[0]));
    case Code::kRandom:
      return StrCat(head, "random seed ", Value(inst.args[0]), " stream ", inst.integer, " at ", ToString(inst.index));
    case Code::kReduce:
      return StrCat(head, "reduce ", ir::Name(inst.op), " ", Arguments(inst));
    case Code::kAccumulate:
      return StrCat("accumulate ", ir::Name(inst.op), " b", inst.buffer, ", ", Value(inst.args[0]));
    case Code::kStash:
      return StrCat("stash s", inst.slot, ", ", Value(inst.args[0]));
    case Code::kUnstash:
      return StrCat(head, "unstash s", inst.slot);
  }
  return head;
}

}  // namespace

std::string ToString(const Kernel& kernel) {
  std::string text = StrCat("kernel ", kernel.name, " rows [");
  for (size_t d = 0; d < kernel.dims.size(); ++d) {
    if (static_cast<int32_t>(d) == kernel.num_outer) text += "] columns [";
    const bool first = d == 0 || static_cast<int32_t>(d) == kernel.num_outer;
    Append(&text, first ? "" : ", ", "d", d, "=", kernel.dims[d]);
  }
  if (kernel.num_outer == static_cast<int32_t>(kernel.dims.size())) text += "] columns [";
  text += "]";
  if (kernel.vector_dim >= 0) Append(&text, " vector d", kernel.vector_dim);
  if (kernel.ordered_rows) text += " ordered_rows";
  if (kernel.shards > 0) Append(&text, " shards ", kernel.shards);
  text += "\n";
  for (size_t b = 0; b < kernel.buffers.size(); ++b) {
    const KernelBuffer& buffer = kernel.buffers[b];
    Append(&text, "  b", b, ": ", ir::Name(buffer.dtype), "[", buffer.extent, "]", buffer.read ? " read" : "",
           buffer.written ? " write" : "", "\n");
  }
  for (size_t s = 0; s < kernel.slots.size(); ++s) {
    Append(&text, "  s", s, ": ", ir::Name(kernel.slots[s]), "\n");
  }
  for (const Stage& stage : kernel.stages) {
    Append(&text, stage.element ? "  element:\n" : "  row:\n");
    for (InstId id : stage.insts) Append(&text, "    ", InstText(kernel.insts[id], id), "\n");
  }
  return text;
}

}  // namespace stepone::loops
