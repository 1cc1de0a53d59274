#include "tests/testlib/kernel_interpreter.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "compiler/ir/scalar.h"
#include "compiler/loops/index_expr.h"
#include "proto/str_cat.h"
#include "tests/testlib/scalar_ops.h"

namespace stepone::testlib {

using ir::DType;
using ir::Op;
using loops::Code;
using loops::Inst;
using loops::InstId;
using loops::Kernel;

namespace {

// Where a reduction starts.
Cell Identity(Op op, DType type) {
  const bool real = ir::IsFloat(type);
  Cell cell;
  if (op == Op::kProd) cell.real = 1;
  if (op == Op::kProd || op == Op::kAll) cell.integer = 1;
  if (op == Op::kMax) {
    cell.real = -std::numeric_limits<double>::infinity();
    cell.integer = std::numeric_limits<int64_t>::min();
  }
  if (op == Op::kMin) {
    cell.real = std::numeric_limits<double>::infinity();
    cell.integer = std::numeric_limits<int64_t>::max();
  }
  if (real) cell.integer = 0;
  return cell;
}

// Sums and products are rounded when they are complete.
void Join(Op op, DType type, Cell value, Cell* into) {
  const bool real = ir::IsFloat(type);
  switch (op) {
    case Op::kSum:
      into->real += value.real;
      into->integer = static_cast<int64_t>(static_cast<uint64_t>(into->integer) + static_cast<uint64_t>(value.integer));
      return;
    case Op::kProd:
      into->real *= value.real;
      into->integer = static_cast<int64_t>(static_cast<uint64_t>(into->integer) * static_cast<uint64_t>(value.integer));
      return;
    case Op::kMax:
    case Op::kMin: {
      const bool larger = op == Op::kMax;
      if (!real) {
        into->integer = larger ? std::max(into->integer, value.integer) : std::min(into->integer, value.integer);
      } else if (std::isnan(value.real)) {
        into->real = value.real;
      } else if (!std::isnan(into->real)) {
        into->real = larger ? std::max(into->real, value.real) : std::min(into->real, value.real);
      }
      return;
    }
    case Op::kAny:
      into->integer |= value.integer;
      return;
    case Op::kAll:
      into->integer &= value.integer;
      return;
    default:
      return;
  }
}

Cell Rounded(DType type, Cell cell) {
  if (ir::IsFloat(type)) {
    cell.real = ir::RoundTo(type, cell.real);
  } else {
    cell.integer = ir::WrapTo(type, cell.integer);
  }
  return cell;
}

// argmax and argmin: the first of the largest, or the first NaN.
struct Best {
  bool any = false;
  Cell value;
  int64_t position = 0;
};

bool Beats(Op op, DType type, Cell value, Cell than) {
  const bool larger = op == Op::kArgMax;
  if (!ir::IsFloat(type)) return larger ? value.integer > than.integer : value.integer < than.integer;
  if (std::isnan(than.real)) return false;
  if (std::isnan(value.real)) return true;
  return larger ? value.real > than.real : value.real < than.real;
}

class Machine {
 public:
  Machine(const Kernel& kernel, const std::vector<std::span<char>>& buffers)
      : kernel_(kernel),
        buffers_(buffers),
        values_(kernel.insts.size()),
        reductions_(kernel.insts.size()),
        best_(kernel.insts.size()),
        partials_(kernel.insts.size()),
        point_(kernel.dims.size(), 0) {}

  absl::Status Run() {
    if (const std::string wrong = loops::Verify(kernel_); !wrong.empty()) return absl::InternalError(wrong);
    for (size_t d = 0; d < kernel_.dims.size(); ++d) {
      (static_cast<int32_t>(d) < kernel_.num_outer ? rows_ : columns_) *= kernel_.dims[d];
    }
    for (size_t b = 0; b < kernel_.buffers.size(); ++b) {
      const int64_t needed = kernel_.buffers[b].extent * ir::ByteSize(kernel_.buffers[b].dtype);
      if (static_cast<int64_t>(buffers_[b].size()) < needed) return absl::InternalError("a buffer is too small");
    }
    stash_.assign(kernel_.slots.size(), std::vector<Cell>(static_cast<size_t>(columns_)));
    StartPartials();
    for (row_ = 0; row_ < rows_ && status_.ok(); ++row_) RunRow();
    if (status_.ok()) StorePartials();
    return status_;
  }

 private:
  void SetPoint(int64_t linear, int32_t begin, int32_t end) {
    for (int32_t d = end; d-- > begin;) {
      point_[d] = linear % kernel_.dims[d];
      linear /= kernel_.dims[d];
    }
  }

  void RunRow() {
    SetPoint(row_, 0, kernel_.num_outer);
    for (const loops::Stage& stage : kernel_.stages) {
      for (InstId id : stage.insts) {
        reductions_[id] = Identity(kernel_.insts[id].op, kernel_.insts[id].type);
        best_[id] = Best{};
      }
      const int64_t count = stage.element ? columns_ : 1;
      for (column_ = 0; column_ < count && status_.ok(); ++column_) {
        if (stage.element) SetPoint(column_, kernel_.num_outer, static_cast<int32_t>(kernel_.dims.size()));
        for (InstId id : stage.insts) {
          Execute(id, stage.element);
          if (!status_.ok()) return;
        }
      }
      for (InstId id : stage.insts) EndReduction(id);
    }
  }

  Cell Arg(const Inst& inst, size_t i) const { return values_[inst.args[i]]; }
  DType ArgType(const Inst& inst, size_t i) const { return kernel_.insts[inst.args[i]].type; }

  void EndReduction(InstId id) {
    const Inst& inst = kernel_.insts[id];
    if (inst.code != Code::kReduce) return;
    if (inst.op == Op::kArgMax || inst.op == Op::kArgMin) {
      values_[id].integer = best_[id].position;
    } else {
      values_[id] = Rounded(inst.type, reductions_[id]);
    }
  }

  // Empty: a guard keeps the access away, or it is an error.
  char* Address(const Inst& inst) {
    if (inst.guard >= 0 && Arg(inst, inst.guard).integer == 0) return nullptr;
    int64_t index = loops::Evaluate(inst.index, point_);
    for (const loops::IndirectTerm& term : inst.indirect) {
      int64_t value = Arg(inst, term.arg).integer;
      if (value < (term.wrap ? -term.bound : 0) || value >= term.bound) {
        status_ = absl::OutOfRangeError("index out of range");
        return nullptr;
      }
      if (value < 0) value += term.bound;
      index += value * term.stride;
    }
    if (index < 0 || index >= kernel_.buffers[inst.buffer].extent) {
      status_ = absl::InternalError(StrCat("leaves buffer b", inst.buffer, " at ", index));
      return nullptr;
    }
    return buffers_[inst.buffer].data() + index * ir::ByteSize(inst.type);
  }

  void Execute(InstId id, bool element) {
    const Inst& inst = kernel_.insts[id];
    Cell& result = values_[id];
    switch (inst.code) {
      case Code::kScalar:
        return Scalar(inst, &result);
      case Code::kConstant:
        result = Cell{inst.number, inst.integer};
        return;
      case Code::kIndex:
        result.integer = loops::Evaluate(inst.index, point_);
        return;
      case Code::kInBounds: {
        const int64_t index = loops::Evaluate(inst.index, point_);
        result.integer = inst.low <= index && index < inst.high ? 1 : 0;
        return;
      }
      case Code::kLoad: {
        const char* at = Address(inst);
        result = at == nullptr ? Cell{} : ReadCell(inst.type, at);
        return;
      }
      case Code::kStore:
      case Code::kStoreAdd: {
        char* at = Address(inst);
        if (at == nullptr) return;
        Cell value = Arg(inst, 0);
        if (inst.code == Code::kStoreAdd) {
          Join(Op::kSum, inst.type, ReadCell(inst.type, at), &value);
          value = Rounded(inst.type, value);
        }
        WriteCell(inst.type, value, at);
        return;
      }
      case Code::kRandom:
        result.real = RandomUniform(Arg(inst, 0).integer, inst.integer, loops::Evaluate(inst.index, point_));
        return;
      case Code::kReduce:
        return Reduce(inst, id);
      case Code::kAccumulate: {
        const int64_t per_shard = static_cast<int64_t>(partials_[id].size()) / kernel_.shards;
        const int64_t shard = ((row_ + 1) * kernel_.shards - 1) / rows_;
        Join(inst.op, inst.type, Arg(inst, 0), &partials_[id][shard * per_shard + (element ? column_ : 0)]);
        return;
      }
      case Code::kStash:
        stash_[inst.slot][column_] = Arg(inst, 0);
        return;
      case Code::kUnstash:
        result = stash_[inst.slot][column_];
        return;
    }
  }

  void Scalar(const Inst& inst, Cell* result) {
    std::vector<Cell> args;
    for (size_t i = 0; i < inst.args.size(); ++i) args.push_back(Arg(inst, i));
    const DType from = inst.args.empty() ? inst.type : ArgType(inst, inst.op == Op::kWhere ? 1 : 0);
    if (!EvaluateScalar(inst.op, from, inst.type, args, result)) {
      status_ = absl::FailedPreconditionError("integer division by zero");
    }
  }

  void Reduce(const Inst& inst, InstId id) {
    if (inst.op != Op::kArgMax && inst.op != Op::kArgMin) {
      return Join(inst.op, inst.type, Arg(inst, 0), &reductions_[id]);
    }
    Best& best = best_[id];
    if (best.any && !Beats(inst.op, ArgType(inst, 0), Arg(inst, 0), best.value)) return;
    best = Best{true, Arg(inst, 0), column_};
  }

  void StartPartials() {
    for (size_t id = 0; id < kernel_.insts.size(); ++id) {
      const Inst& inst = kernel_.insts[id];
      if (inst.code != Code::kAccumulate) continue;
      partials_[id].assign(static_cast<size_t>(kernel_.buffers[inst.buffer].extent), Identity(inst.op, inst.type));
    }
  }

  void StorePartials() {
    for (size_t id = 0; id < kernel_.insts.size(); ++id) {
      const Inst& inst = kernel_.insts[id];
      for (size_t i = 0; i < partials_[id].size(); ++i) {
        WriteCell(inst.type, Rounded(inst.type, partials_[id][i]),
                  buffers_[inst.buffer].data() + static_cast<int64_t>(i) * ir::ByteSize(inst.type));
      }
    }
  }

  const Kernel& kernel_;
  const std::vector<std::span<char>>& buffers_;
  std::vector<Cell> values_;
  std::vector<Cell> reductions_;
  std::vector<Best> best_;
  std::vector<std::vector<Cell>> partials_;  // per accumulate instruction
  std::vector<std::vector<Cell>> stash_;
  ir::Dims point_;
  int64_t rows_ = 1, columns_ = 1;
  int64_t row_ = 0, column_ = 0;
  absl::Status status_;
};

class ProgramRunner {
 public:
  ProgramRunner(const ir::Graph& graph, const loops::Program& program, const std::vector<Tensor>& inputs, int64_t seed,
                const planning::MemoryPlan* plan)
      : graph_(graph), program_(program), inputs_(inputs), seed_(seed), plan_(plan) {}

  absl::StatusOr<std::vector<Tensor>> Run() {
    if (!program_.error.empty()) return absl::InternalError(program_.error);
    MakeStorage();
    for (const loops::Step& step : program_.steps) {
      absl::Status status = RunStep(step);
      if (!status.ok()) return status;
    }
    std::vector<Tensor> outputs;
    for (const loops::ProgramOutput& output : program_.outputs) {
      if (output.buffer < 0) {
        outputs.emplace_back();
        continue;
      }
      const ir::TensorType& type = program_.buffers[output.buffer].type;
      outputs.push_back(FromBytes(type.dtype, type.sizes, type.strides, Find(output.buffer).data()));
    }
    return outputs;
  }

 private:
  void MakeStorage() {
    storage_.resize(program_.buffers.size());
    memory_.resize(program_.buffers.size());
    if (plan_ != nullptr) arena_.assign(static_cast<size_t>(plan_->arena_bytes), '\xee');
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      const loops::Buffer& buffer = program_.buffers[b];
      const size_t bytes = static_cast<size_t>(ir::StorageExtent(buffer.type) * ir::ByteSize(buffer.type.dtype));
      switch (buffer.kind) {
        case loops::Buffer::Kind::kInput:
          storage_[b] = ToBytes(inputs_[buffer.index], buffer.type.strides);
          break;
        case loops::Buffer::Kind::kConstant:
          storage_[b] = graph_.constants[buffer.index].data;
          break;
        case loops::Buffer::Kind::kTemporary:
        case loops::Buffer::Kind::kExtern:
          if (plan_ != nullptr && plan_->placements[b].home == planning::Home::kArena) {
            memory_[b] = std::span<char>(arena_).subspan(static_cast<size_t>(plan_->placements[b].offset_bytes), bytes);
            continue;
          }
          storage_[b].assign(bytes, '\xee');
          break;
        case loops::Buffer::Kind::kView:
          break;
      }
      memory_[b] = storage_[b];
    }
  }

  // From the buffer's first element to the end of the memory that it is in.
  std::span<char> Find(loops::BufferId id) {
    int64_t offset = 0;
    while (program_.buffers[id].kind == loops::Buffer::Kind::kView) {
      offset += program_.buffers[id].offset * ir::ByteSize(program_.buffers[id].type.dtype);
      id = program_.buffers[id].base;
    }
    return memory_[id].subspan(static_cast<size_t>(offset));
  }

  absl::Status RunStep(const loops::Step& step) {
    if (const auto* draw = std::get_if<loops::DrawSeed>(&step)) {
      std::memcpy(Find(draw->buffer).data(), &seed_, sizeof(seed_));
      return absl::OkStatus();
    }
    const auto* launch = std::get_if<loops::Launch>(&step);
    if (launch == nullptr) return absl::UnimplementedError("extern call");
    std::vector<std::span<char>> buffers;
    for (loops::BufferId id : launch->buffers) {
      buffers.push_back(Find(id));
      if (buffers.back().data() != memory_[planning::RootOf(program_, id)].data()) {
        return absl::InternalError("a kernel's argument is a view with an offset");
      }
    }
    absl::Status status = RunKernel(launch->kernel, buffers);
    if (status.ok() || status.code() != absl::StatusCode::kInternal) return status;
    return absl::InternalError(StrCat(status.message(), "\n", loops::ToString(launch->kernel)));
  }

  const ir::Graph& graph_;
  const loops::Program& program_;
  const std::vector<Tensor>& inputs_;
  int64_t seed_;
  const planning::MemoryPlan* plan_;
  std::vector<std::string> storage_;  // of buffers that have memory of their own
  std::string arena_;
  std::vector<std::span<char>> memory_;  // per buffer
};

}  // namespace

absl::Status RunKernel(const Kernel& kernel, const std::vector<std::span<char>>& buffers) {
  return Machine(kernel, buffers).Run();
}

absl::StatusOr<std::vector<Tensor>> RunProgram(const ir::Graph& graph, const loops::Program& program,
                                               const std::vector<Tensor>& inputs, int64_t seed,
                                               const planning::MemoryPlan* plan) {
  return ProgramRunner(graph, program, inputs, seed, plan).Run();
}

}  // namespace stepone::testlib
