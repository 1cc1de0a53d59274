#include "tests/testlib/evaluator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "compiler/ir/scalar.h"
#include "proto/str_cat.h"
#include "tests/testlib/scalar_ops.h"

namespace stepone::testlib {

using ir::Dims;
using ir::DType;
using ir::Node;
using ir::Op;
using ir::ValueId;

namespace {

int64_t Count(const Dims& sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

Dims PointOf(int64_t position, const Dims& sizes) {
  Dims point(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    point[d] = position % sizes[d];
    position /= sizes[d];
  }
  return point;
}

int64_t PositionOf(const Dims& point, const Dims& sizes) {
  int64_t position = 0;
  for (size_t d = 0; d < sizes.size(); ++d) position = position * sizes[d] + point[d];
  return position;
}

using Cells = std::vector<Cell>;

class Evaluator {
 public:
  Evaluator(const ir::Graph& graph, int64_t seed) : graph_(graph), seed_(seed), cells_(graph.num_values()) {}

  absl::StatusOr<std::vector<Tensor>> Run(const std::vector<Tensor>& inputs) {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      if (graph_.inputs[i] != ir::kNoValue) cells_[graph_.inputs[i]] = FromTensor(inputs[i]);
    }
    for (const ir::Constant& constant : graph_.constants) {
      const ir::TensorType& type = graph_.type(constant.value);
      cells_[constant.value] =
          FromTensor(FromBytes(type.dtype, type.sizes, ir::ContiguousStrides(type.sizes), constant.data.data()));
    }
    for (ir::NodeId id : graph_.order()) {
      const Node& node = graph_.node(id);
      if (node.op == Op::kAten) return absl::UnimplementedError("extern call");
      EvaluateNode(node);
      if (!status_.ok()) return status_;
    }
    std::vector<Tensor> outputs;
    for (const ir::Output& output : graph_.outputs) {
      outputs.push_back(output.value == ir::kNoValue ? Tensor{} : ToTensor(output.value));
    }
    return outputs;
  }

 private:
  static Cells FromTensor(const Tensor& tensor) {
    Cells cells(static_cast<size_t>(tensor.NumElements()));
    for (size_t i = 0; i < cells.size(); ++i) {
      if (ir::IsFloat(tensor.dtype)) {
        cells[i].real = tensor.reals[i];
      } else {
        cells[i].integer = tensor.integers[i];
      }
    }
    return cells;
  }

  Tensor ToTensor(ValueId value) const {
    Tensor tensor;
    tensor.dtype = graph_.type(value).dtype;
    tensor.sizes = graph_.type(value).sizes;
    for (const Cell& cell : cells_[value]) {
      if (ir::IsFloat(tensor.dtype)) {
        tensor.reals.push_back(cell.real);
      } else {
        tensor.integers.push_back(cell.integer);
      }
    }
    return tensor;
  }

  const Dims& Sizes(ValueId value) const { return graph_.type(value).sizes; }
  const Cells& In(const Node& node, size_t i) const { return cells_[node.operands[i]]; }

  Cell FromAttr(const Node& node, std::string_view name, DType type) const {
    const ir::Scalar scalar = ir::Convert(ir::ToScalar(node.attrs.find(name)->second), type);
    return ir::IsFloat(type) ? Cell{ir::ToDouble(scalar), 0} : Cell{0, ir::ToInt64(scalar)};
  }

  // result[point] = operand 0[at(point)].
  void Move(const Node& node, const std::function<Dims(Dims)>& at) {
    const Dims& to = Sizes(node.results[0]);
    Cells& result = cells_[node.results[0]];
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = In(node, 0)[PositionOf(at(PointOf(static_cast<int64_t>(i), to)), Sizes(node.operands[0]))];
    }
  }

  void EvaluateNode(const Node& node) {
    const ValueId out = node.results[0];
    cells_[out].assign(static_cast<size_t>(Count(Sizes(out))), Cell{});
    switch (ir::KindOf(node.op)) {
      case ir::OpKind::kSource:
        return Source(node);
      case ir::OpKind::kSeed:
        cells_[out][0].integer = seed_;
        return;
      case ir::OpKind::kPointwise:
        return Pointwise(node);
      case ir::OpKind::kRandom:
        for (size_t i = 0; i < cells_[out].size(); ++i) {
          cells_[out][i].real =
              RandomUniform(In(node, 0)[0].integer, ir::IntAttr(node, "stream"), static_cast<int64_t>(i));
        }
        return;
      case ir::OpKind::kReduction:
        return Reduction(node);
      case ir::OpKind::kView:
        return View(node);
      case ir::OpKind::kMove:
        return MoveNode(node);
      case ir::OpKind::kIndexed:
        return Indexed(node);
      case ir::OpKind::kExtern:
        return;
    }
  }

  void Source(const Node& node) {
    Cells& result = cells_[node.results[0]];
    const ir::TensorType& type = graph_.type(node.results[0]);
    if (node.op == Op::kFull) {
      const Cell value = FromAttr(node, "value", type.dtype);
      for (Cell& cell : result) cell = value;
      return;
    }
    const int64_t dim = ir::IntAttr(node, "dim");
    const ir::Scalar start = ir::ToScalar(node.attrs.find("start")->second);
    const ir::Scalar step = ir::ToScalar(node.attrs.find("step")->second);
    for (size_t i = 0; i < result.size(); ++i) {
      const int64_t at = PointOf(static_cast<int64_t>(i), type.sizes)[dim];
      if (ir::IsFloat(type.dtype)) {
        result[i].real = ir::RoundTo(type.dtype, ir::ToDouble(start) + ir::ToDouble(step) * static_cast<double>(at));
      } else {
        result[i].integer = ir::WrapTo(type.dtype, ir::ToInt64(start) + ir::ToInt64(step) * at);
      }
    }
  }

  void Pointwise(const Node& node) {
    const DType to = graph_.type(node.results[0]).dtype;
    const DType from = graph_.type(node.operands[node.op == Op::kWhere ? 1 : 0]).dtype;
    Cells& result = cells_[node.results[0]];
    for (size_t i = 0; i < result.size(); ++i) {
      std::vector<Cell> args;
      for (size_t a = 0; a < node.operands.size(); ++a) args.push_back(In(node, a)[i]);
      if (!EvaluateScalar(node.op, from, to, args, &result[i])) {
        status_ = absl::FailedPreconditionError("integer division by zero");
        return;
      }
    }
  }

  // Whether `x` takes over from `best` in a maximum or minimum.
  static bool Wins(bool larger, bool real, const Cell& x, const Cell& best) {
    if (!real) return larger ? x.integer > best.integer : x.integer < best.integer;
    if (std::isnan(best.real)) return false;
    return std::isnan(x.real) || (larger ? x.real > best.real : x.real < best.real);
  }

  void Reduction(const Node& node) {
    const Dims& from = Sizes(node.operands[0]);
    const Dims& dims = ir::DimsAttr(node, "dims");
    const DType type = graph_.type(node.operands[0]).dtype;
    const bool real = ir::IsFloat(type);
    Cells& result = cells_[node.results[0]];
    std::vector<bool> seen(result.size(), false);
    Cells best(result.size());
    if (node.op == Op::kProd || node.op == Op::kAll) result.assign(result.size(), Cell{1, 1});
    for (size_t i = 0; i < In(node, 0).size(); ++i) {
      const Dims point = PointOf(static_cast<int64_t>(i), from);
      int64_t out = 0, inner = 0;
      for (size_t d = 0; d < from.size(); ++d) {
        const bool reduced = std::find(dims.begin(), dims.end(), static_cast<int64_t>(d)) != dims.end();
        (reduced ? inner : out) = (reduced ? inner : out) * from[d] + point[d];
      }
      const Cell& x = In(node, 0)[i];
      const bool first = !seen[out];
      seen[out] = true;
      const bool larger = node.op == Op::kMax || node.op == Op::kArgMax;
      switch (node.op) {
        case Op::kSum:
          result[out].real += x.real;
          result[out].integer += x.integer;
          break;
        case Op::kProd:
          result[out].real *= x.real;
          result[out].integer *= x.integer;
          break;
        case Op::kAny:
          result[out].integer |= x.integer;
          break;
        case Op::kAll:
          result[out].integer &= x.integer;
          break;
        default:
          if (!first && !Wins(larger, real, x, best[out])) break;
          best[out] = x;
          result[out] = node.op == Op::kArgMax || node.op == Op::kArgMin ? Cell{0, inner} : x;
      }
    }
    const DType to = graph_.type(node.results[0]).dtype;
    for (Cell& cell : result) {
      if (ir::IsFloat(to)) {
        cell.real = ir::RoundTo(to, cell.real);
      } else {
        cell.integer = ir::WrapTo(to, cell.integer);
      }
    }
  }

  void View(const Node& node) {
    const Dims& from = Sizes(node.operands[0]);
    switch (node.op) {
      case Op::kReshape:
        cells_[node.results[0]] = In(node, 0);
        return;
      case Op::kPermute: {
        const Dims& dims = ir::DimsAttr(node, "dims");
        return Move(node, [&](Dims point) {
          Dims at(point.size());
          for (size_t i = 0; i < dims.size(); ++i) at[dims[i]] = point[i];
          return at;
        });
      }
      case Op::kExpand:
        return Move(node, [&](Dims point) {
          for (size_t i = 0; i < point.size(); ++i) point[i] = from[i] == 1 ? 0 : point[i];
          return point;
        });
      case Op::kSlice:
        return Move(node, [&](Dims point) {
          int64_t& at = point[ir::IntAttr(node, "dim")];
          at = ir::IntAttr(node, "start") + at * ir::IntAttr(node, "step");
          return point;
        });
      default:
        return Move(node, [&](Dims point) {
          for (int64_t dim : ir::DimsAttr(node, "dims")) point[dim] = from[dim] - 1 - point[dim];
          return point;
        });
    }
  }

  void MoveNode(const Node& node) {
    const ValueId out = node.results[0];
    Cells& result = cells_[out];
    if (node.op == Op::kCopy) {
      result = In(node, 0);
    } else if (node.op == Op::kPad) {
      const Dims& low = ir::DimsAttr(node, "low");
      const Dims& from = Sizes(node.operands[0]);
      const Cell fill = FromAttr(node, "value", graph_.type(out).dtype);
      for (size_t i = 0; i < result.size(); ++i) {
        Dims point = PointOf(static_cast<int64_t>(i), Sizes(out));
        bool inside = true;
        for (size_t d = 0; d < point.size(); ++d) {
          point[d] -= low[d];
          inside &= point[d] >= 0 && point[d] < from[d];
        }
        result[i] = inside ? In(node, 0)[PositionOf(point, from)] : fill;
      }
    } else {
      const int64_t dim = ir::IntAttr(node, "dim");
      int64_t start = 0;
      for (size_t a = 0; a < node.operands.size(); ++a) {
        const Dims& from = Sizes(node.operands[a]);
        for (size_t i = 0; i < In(node, a).size(); ++i) {
          Dims point = PointOf(static_cast<int64_t>(i), from);
          point[dim] += start;
          result[PositionOf(point, Sizes(out))] = In(node, a)[i];
        }
        start += from[dim];
      }
    }
  }

  // The index read at `position`, checked.
  int64_t IndexAt(const Node& node, int64_t position, int64_t bound) {
    int64_t index = In(node, 1)[position].integer;
    const auto wrap = node.attrs.find("wrap");
    if (wrap != node.attrs.end() && std::get<bool>(wrap->second) && index < 0) index += bound;
    if (index >= 0 && index < bound) return index;
    status_ = absl::OutOfRangeError(StrCat("index ", index, " of a dim of size ", bound));
    return 0;
  }

  void Indexed(const Node& node) {
    const ValueId out = node.results[0];
    const int64_t dim = ir::IntAttr(node, "dim");
    const Dims& index_sizes = Sizes(node.operands[1]);
    const bool take = node.op == Op::kTake || node.op == Op::kTakeGrad;
    const bool adds = node.op == Op::kTakeGrad || node.op == Op::kScatterAdd;
    const ValueId table = adds ? out : node.operands[0];
    const ValueId points = !adds ? out : node.op == Op::kTakeGrad ? node.operands[0] : node.operands[2];
    if (node.op == Op::kScatterAdd) cells_[out] = In(node, 0);
    const int64_t skip = node.op == Op::kTakeGrad ? ir::IntAttrOr(node, "skip", -1) : -1;
    const DType type = graph_.type(out).dtype;
    for (int64_t i = 0; i < Count(Sizes(points)); ++i) {
      const Dims point = PointOf(i, Sizes(points));
      const auto rank = static_cast<int64_t>(index_sizes.size());
      const Dims at = take ? Dims(point.begin() + dim, point.begin() + dim + rank) : point;
      if (skip >= 0 && In(node, 1)[PositionOf(at, index_sizes)].integer == skip) continue;
      const int64_t index = IndexAt(node, PositionOf(at, index_sizes), Sizes(table)[dim]);
      if (!status_.ok()) return;
      Dims place = point;
      if (take) {
        place.erase(place.begin() + dim, place.begin() + dim + rank);
        place.insert(place.begin() + dim, index);
      } else {
        place[dim] = index;
      }
      const int64_t position = PositionOf(place, Sizes(table));
      if (!adds) {
        cells_[out][i] = cells_[table][position];
      } else {
        EvaluateScalar(Op::kAdd, type, type, {cells_[out][position], cells_[points][i]}, &cells_[out][position]);
      }
    }
  }

  const ir::Graph& graph_;
  const int64_t seed_;
  std::vector<Cells> cells_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::vector<Tensor>> Evaluate(const ir::Graph& graph, const std::vector<Tensor>& inputs, int64_t seed) {
  if (inputs.size() != graph.inputs.size()) return absl::InvalidArgumentError("inputs do not fit");
  return Evaluator(graph, seed).Run(inputs);
}

}  // namespace stepone::testlib
