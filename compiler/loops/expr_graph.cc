#include "compiler/loops/expr_graph.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace stepone::loops {
namespace {

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

uint64_t Hash(const Inst& inst) {
  uint64_t hash = static_cast<uint64_t>(inst.code) * 1000 + static_cast<uint64_t>(inst.op) * 16;
  hash = Mix(hash, static_cast<uint64_t>(inst.type));
  for (InstId arg : inst.args) hash = Mix(hash, static_cast<uint64_t>(arg));
  hash = Mix(hash, static_cast<uint64_t>(inst.buffer));
  hash = Mix(hash, static_cast<uint64_t>(inst.index.constant));
  for (const Term& term : inst.index.terms) {
    hash = Mix(hash, static_cast<uint64_t>(term.coefficient * 64 + term.dim));
  }
  hash = Mix(hash, std::bit_cast<uint64_t>(inst.number));
  return Mix(hash, static_cast<uint64_t>(inst.integer));
}

// -0.0 == 0.0 for operator==, and not for a kernel.
bool Same(const Inst& a, const Inst& b) {
  return std::bit_cast<uint64_t>(a.number) == std::bit_cast<uint64_t>(b.number) &&
         (a == b || (a.number != a.number && [&] {
            Inst x = a, y = b;
            x.number = y.number = 0;
            return x == y;
          }()));
}

}  // namespace

ExprId ExprGraph::Add(Inst inst) {
  const uint64_t hash = Hash(inst);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (Same(exprs_[it->second], inst)) return it->second;
  }
  const ExprId id = size();
  exprs_.push_back(std::move(inst));
  by_hash_.emplace(hash, id);
  return id;
}

ExprId ExprGraph::Scalar(ir::Op op, ir::DType type, std::vector<ExprId> args) {
  Inst inst;
  inst.op = op;
  inst.type = type;
  inst.args = std::move(args);
  return Add(std::move(inst));
}

ExprId ExprGraph::Constant(ir::DType type, const ir::Scalar& value) {
  Inst inst;
  inst.code = Code::kConstant;
  inst.type = type;
  const ir::Scalar converted = ir::Convert(value, type);
  if (ir::IsFloat(type)) {
    inst.number = ir::ToDouble(converted);
  } else {
    inst.integer = ir::ToInt64(converted);
  }
  return Add(std::move(inst));
}

int32_t ExprGraph::BufferIndex(BufferId buffer) {
  const auto at = std::find(buffers.begin(), buffers.end(), buffer);
  if (at != buffers.end()) return static_cast<int32_t>(at - buffers.begin());
  buffers.push_back(buffer);
  return static_cast<int32_t>(buffers.size()) - 1;
}

}  // namespace stepone::loops
