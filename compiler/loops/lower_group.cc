#include "compiler/loops/lower_group.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "compiler/ir/scalar.h"
#include "compiler/loops/expr_graph.h"
#include "compiler/loops/group_name.h"
#include "compiler/loops/layout.h"
#include "compiler/loops/picked_element.h"
#include "compiler/loops/space.h"

namespace stepone::loops {

using ir::DType;
using ir::Node;
using ir::NodeId;
using ir::Op;
using ir::OpKind;
using ir::ValueId;

namespace {

using Coords = std::vector<IndexExpr>;

bool IsView(const ir::Graph& graph, ValueId value) {
  const NodeId producer = graph.value(value).producer;
  return producer != ir::kNoNode && ir::KindOf(graph.node(producer).op) == OpKind::kView;
}

bool DividesIntegers(Op op, DType type) {
  return !ir::IsFloat(type) && (op == Op::kFloorDiv || op == Op::kTruncDiv || op == Op::kRemainder || op == Op::kFmod);
}

// Joins two partial results of a reduction.
Op JoiningOp(Op reduction) {
  switch (reduction) {
    case Op::kProd:
      return Op::kMul;
    case Op::kMax:
      return Op::kMaximum;
    case Op::kMin:
      return Op::kMinimum;
    case Op::kAny:
      return Op::kOr;
    case Op::kAll:
      return Op::kAnd;
    default:
      return Op::kAdd;
  }
}

class Lowering {
 public:
  Lowering(const FusionGraph& fusion, const Group& group, const std::vector<bool>& stored, const FuseOptions& options,
           BufferTable& buffers)
      : fusion_(fusion), graph_(fusion.graph()), group_(group), stored_(stored), options_(options), buffers_(buffers) {}

  LowerFailure Run(std::vector<Step>& steps) {
    if (group_.has_scatter) {
      if (!AddInitialization(steps)) return failure_;
    }
    if (group_.Points() == 0 || std::count(group_.atoms.begin(), group_.atoms.end(), 0) > 0) return {};
    if (!Build([&] { BuildRoots(); })) return failure_;
    if (exprs_.roots.empty()) return {};
    NestRequest request;
    request.atoms = group_.atoms;
    request.columns = group_.columns;
    request.columns_fixed = group_.columns != 0;
    request.ordered_rows = group_.has_scatter;
    request.keep_column_order = position_results_;
    request.reduces_all = reduces_all_;
    if (group_.has_scatter) {
      request.columns = ScatterColumns();
      request.columns_fixed = true;
    }
    Finish(request, GroupName(fusion_, group_), steps);
    return {};
  }

 private:
  // Runs `roots` again and again, with finer atoms each time, until every position can be written down.
  template <typename F>
  bool Build(F roots) {
    for (int attempt = 0; attempt < 64; ++attempt) {
      exprs_ = ExprGraph();
      sizes_ = group_.atoms;
      split_ = Split{};
      failure_ = LowerFailure{};
      item_exprs_.clear();
      dynamic_.clear();
      partial_roots_.clear();
      position_results_ = reduces_all_ = false;
      roots();
      if (split_.dim >= 0) {
        RefineGroup();
        continue;
      }
      return !failure_.failed;
    }
    failure_.failed = true;
    return false;
  }

  bool Bad() const { return failure_.failed || split_.dim >= 0; }

  void Fail(ValueId copy) {
    if (Bad()) return;
    failure_.failed = true;
    failure_.copy = copy;
  }

  void RefineGroup() {
    for (std::vector<IndexExpr>& atoms : group_.item_atoms) {
      for (IndexExpr& expr : atoms) expr = ApplySplit(expr, split_);
    }
    const uint64_t below = (uint64_t{1} << split_.dim) - 1;
    const uint64_t low = group_.columns & below, high = (group_.columns & ~below) << 1;
    const bool was = (group_.columns >> split_.dim) & 1;
    group_.columns = (high & ~(uint64_t{3} << split_.dim)) | low | (was ? uint64_t{3} << split_.dim : 0);
    ApplySplit(split_, &group_.atoms);
  }

  // --- roots ---------------------------------------------------------------------------------------------------------

  void BuildRoots() {
    for (size_t i = 0; i < group_.items.size() && !Bad(); ++i) {
      const Item& item = fusion_.item(group_.items[i]);
      const Node& node = graph_.node(item.node);
      if (item.kind == ItemKind::kScatter) {
        BuildScatter(i);
      } else if (item.kind == ItemKind::kParts) {
        BuildParts(i);
      } else if (item.kind == ItemKind::kReduce && group_.roles[i] != ReduceRole::kRow) {
        BuildAccumulate(i);
      } else if (stored_[node.results[0]]) {
        const ExprId value = ItemExpr(i);
        if (value == kNoExpr) return;
        Coords coords = ItemPoint(i);
        if (item.kind == ItemKind::kReduce) coords = KeptCoords(node, coords);
        exprs_.roots.push_back(StoreInst(node.results[0], coords, value));
      }
    }
  }

  Coords ItemPoint(size_t index) {
    std::optional<Coords> coords = ItemCoords(fusion_, group_, index);
    if (!coords) {
      Fail(ir::kNoValue);
      return Coords(fusion_.item(group_.items[index]).domain.size());
    }
    return std::move(*coords);
  }

  Inst StoreInst(ValueId value, const Coords& coords, ExprId expr) {
    Inst store;
    store.code = Code::kStore;
    store.type = graph_.type(value).dtype;
    store.args = {expr};
    Address(buffers_.Of(value), Strided{value, 0, buffers_.buffer(buffers_.Of(value)).type.strides}, coords, &store);
    return store;
  }

  void BuildAccumulate(size_t index) {
    const Item& item = fusion_.item(group_.items[index]);
    const Node& node = graph_.node(item.node);
    ExprId value = Eval(node.operands[0], ItemPoint(index), kNoExpr);
    if (value == kNoExpr) return;
    if (group_.roles[index] == ReduceRole::kRowThenRows) {
      reduces_all_ = true;
      value = ReduceExpr(node, value);
    }
    Inst inst;
    inst.code = Code::kAccumulate;
    inst.op = node.op;
    inst.type = exprs_.at(value).type;
    inst.args = {value};
    // The buffer is made when the columns' order is known.
    partial_roots_.push_back({exprs_.roots.size(), index});
    exprs_.roots.push_back(std::move(inst));
  }

  void BuildScatter(size_t index) {
    const Item& item = fusion_.item(group_.items[index]);
    const Node& node = graph_.node(item.node);
    const Coords point = ItemPoint(index);
    const int64_t dim = ir::IntAttr(node, "dim");
    const ValueId result = node.results[0];
    Coords target;
    ExprId position = kNoExpr;
    if (node.op == Op::kTakeGrad) {
      const auto rank = graph_.type(node.operands[1]).rank();
      const Coords at(point.begin() + dim, point.begin() + dim + rank);
      position = Eval(node.operands[1], at, kNoExpr);
      target.assign(point.begin(), point.begin() + dim);
      target.emplace_back();
      target.insert(target.end(), point.begin() + dim + rank, point.end());
    } else {
      position = Eval(node.operands[1], point, kNoExpr);
      target = point;
    }
    const ExprId value = Eval(node.op == Op::kTakeGrad ? node.operands[0] : node.operands[2], point, kNoExpr);
    if (Bad()) return;
    target[dim] = DimIndex(Dynamic(position, graph_.type(result).sizes[dim], BoolAttr(node, "wrap")));
    Inst store = StoreInst(result, target, value);
    store.code = Code::kStoreAdd;
    if (const int64_t skip = ir::IntAttrOr(node, "skip", -1); skip >= 0) {
      store.guard = static_cast<int32_t>(store.args.size());
      store.args.push_back(Scalar(Op::kNe, DType::kBool, {position, Integer(exprs_.at(position).type, skip)}));
    }
    exprs_.roots.push_back(std::move(store));
  }

  void BuildParts(size_t index) {
    const Node& node = graph_.node(fusion_.item(group_.items[index]).node);
    const int64_t dim = ir::IntAttr(node, "dim");
    const Coords point = ItemPoint(index);
    for (size_t part = 0; part < node.operands.size(); ++part) {
      const ExprId value = Eval(node.operands[part], point, kNoExpr);
      if (value == kNoExpr) return;
      Coords target = point;
      target[dim] = AddConstant(target[dim], static_cast<int64_t>(part) * graph_.type(node.operands[part]).sizes[dim]);
      exprs_.roots.push_back(StoreInst(node.results[0], target, value));
    }
  }

  // Columns of a scatter's kernel: what does not decide which of several additions to one place comes first.
  uint64_t ScatterColumns() {
    uint64_t ordered = 0;
    for (size_t i = 0; i < group_.items.size(); ++i) {
      const Item& item = fusion_.item(group_.items[i]);
      if (item.kind != ItemKind::kScatter) continue;
      const Node& node = graph_.node(item.node);
      const Coords point = ItemPoint(i);
      const int64_t dim = ir::IntAttr(node, "dim");
      const int64_t count = node.op == Op::kTakeGrad ? graph_.type(node.operands[1]).rank() : 1;
      for (int64_t d = dim; d < dim + count; ++d) ordered |= DimMask(point[d]);
    }
    const uint64_t all = group_.atoms.empty() ? 0 : (~uint64_t{0} >> (64 - group_.atoms.size()));
    return all & ~ordered;
  }

  // What a scatter adds to: zeros, or its first operand.
  bool AddInitialization(std::vector<Step>& steps) {
    for (size_t i = 0; i < group_.items.size(); ++i) {
      const Item& item = fusion_.item(group_.items[i]);
      if (item.kind != ItemKind::kScatter) continue;
      const Node& node = graph_.node(item.node);
      const ir::TensorType& type = graph_.type(node.results[0]);
      if (type.NumElements() == 0) continue;
      const Group whole = group_;
      group_ = Group{};
      Coords coords(type.sizes.size());
      for (size_t d = 0; d < type.sizes.size(); ++d) group_.atoms.push_back(type.sizes[d]);
      group_.item_atoms.emplace_back();
      for (size_t d = 0; d < type.sizes.size(); ++d) group_.item_atoms[0].push_back(DimIndex(static_cast<int32_t>(d)));
      const bool built = Build([&] {
        for (size_t d = 0; d < coords.size(); ++d) coords[d] = group_.item_atoms[0][d];
        const ExprId value = node.op == Op::kTakeGrad ? Number(type.dtype, 0) : Eval(node.operands[0], coords, kNoExpr);
        if (value != kNoExpr) exprs_.roots.push_back(StoreInst(node.results[0], coords, value));
      });
      if (!built) return false;
      NestRequest request;
      request.atoms = group_.atoms;
      Finish(request, node.op == Op::kTakeGrad ? "zero" : "copy", steps);
      group_ = whole;
    }
    return true;
  }

  // --- values --------------------------------------------------------------------------------------------------------

  ExprId ItemExpr(size_t index) {
    if (const auto at = item_exprs_.find(index); at != item_exprs_.end()) return at->second;
    const Item& item = fusion_.item(group_.items[index]);
    const Node& node = graph_.node(item.node);
    const Coords point = ItemPoint(index);
    ExprId expr = kNoExpr;
    if (item.kind == ItemKind::kReduce) {
      const ExprId value = Eval(node.operands[0], point, kNoExpr);
      if (value != kNoExpr) expr = ReduceExpr(node, value);
    } else if (item.kind == ItemKind::kCombine) {
      expr = CombineExpr(node, point);
    } else {
      expr = NodeExpr(node, point, kNoExpr);
    }
    if (Bad()) return kNoExpr;
    item_exprs_[index] = expr;
    return expr;
  }

  ExprId ReduceExpr(const Node& node, ExprId value) {
    if (node.op == Op::kSum) {
      const ExprId picked = PickedElement(exprs_, value, group_.columns, group_.atoms);
      if (picked != kNoExpr) return picked;
    }
    Inst inst;
    inst.code = Code::kReduce;
    inst.op = node.op;
    inst.type = graph_.type(node.results[0]).dtype;
    inst.args = {value};
    if (node.op == Op::kArgMax || node.op == Op::kArgMin) {
      position_results_ = true;
    } else {
      inst.type = exprs_.at(value).type;
    }
    return exprs_.Add(std::move(inst));
  }

  // The slices of a partial buffer, joined in order.
  ExprId CombineExpr(const Node& node, const Coords& coords) {
    const Partial& partial = buffers_.partials.at(node.results[0]);
    IndexExpr position;
    for (size_t d = 0; d < coords.size(); ++d) {
      IndexExpr rest = coords[d];
      for (size_t p = partial.parts[d].size(); p-- > 0;) {
        const Partial::Part& part = partial.parts[d][p];
        if (p == 0) {
          position = Add(position, Scale(rest, part.stride));
          break;
        }
        Split split;
        std::optional<DivMod> parts = Divide(rest, part.size, sizes_, &split);
        if (!parts) {
          if (split.dim >= 0 && !Bad()) split_ = split;
          Fail(ir::kNoValue);
          return kNoExpr;
        }
        position = Add(position, Scale(parts->remainder, part.stride));
        rest = std::move(parts->quotient);
      }
    }
    const DType type = graph_.type(node.results[0]).dtype;
    ExprId sum = kNoExpr;
    for (int64_t shard = 0; shard < partial.shards; ++shard) {
      Inst load;
      load.code = Code::kLoad;
      load.type = type;
      load.buffer = exprs_.BufferIndex(partial.buffer);
      load.index = AddConstant(position, shard * partial.shard_elements);
      const ExprId slice = exprs_.Add(std::move(load));
      sum = shard == 0 ? slice : Scalar(JoiningOp(node.op), type, {sum, slice});
    }
    return sum;
  }

  // The value at `coords`; what a guard (a bool expression) keeps out may be anything but an error.
  ExprId Eval(ValueId value, Coords coords, ExprId guard) {
    while (!Bad()) {
      const ValueId base = BaseOf(graph_, value);
      const NodeId producer = graph_.value(base).producer;
      const int32_t item = fusion_.ProducerItem(base);
      const bool inlined = producer != ir::kNoNode && fusion_.Inlined(producer);
      const auto member = std::lower_bound(group_.items.begin(), group_.items.end(), item);
      const bool inside = item >= 0 && member != group_.items.end() && *member == item;
      if (!inlined && !inside) {
        if (const std::optional<Strided> access = StridedAccess(graph_, value)) return Load(*access, coords, guard);
      }
      if (!IsView(graph_, value)) {
        if (inlined) return NodeExpr(graph_.node(producer), coords, guard);
        if (inside) return MemberExpr(static_cast<size_t>(member - group_.items.begin()), coords, guard);
        break;
      }
      const Node& view = graph_.node(graph_.value(value).producer);
      Split split;
      std::optional<Coords> inner = ViewCoords(graph_, view, coords, sizes_, &split);
      if (!inner) {
        if (split.dim >= 0 && split.dim < static_cast<int32_t>(group_.atoms.size())) {
          split_ = split;
        } else {
          Fail(view.operands[0]);
        }
        return kNoExpr;
      }
      coords = std::move(*inner);
      value = view.operands[0];
    }
    Fail(ir::kNoValue);
    return kNoExpr;
  }

  ExprId MemberExpr(size_t index, const Coords& coords, ExprId guard) {
    const Item& item = fusion_.item(group_.items[index]);
    const Coords point = ItemPoint(index);
    const bool own =
        item.kind == ItemKind::kReduce ? KeptCoords(graph_.node(item.node), point) == coords : point == coords;
    const bool row = item.kind != ItemKind::kReduce || group_.roles[index] == ReduceRole::kRow;
    if (own && row && item.kind != ItemKind::kScatter && item.kind != ItemKind::kParts) return ItemExpr(index);
    // At another position: computed again there.
    if (item.kind == ItemKind::kElementwise && graph_.node(item.node).op != Op::kRandom) {
      return NodeExpr(graph_.node(item.node), coords, guard);
    }
    Fail(ir::kNoValue);
    return kNoExpr;
  }

  ExprId NodeExpr(const Node& node, const Coords& coords, ExprId guard) {
    const DType type = graph_.type(node.results[0]).dtype;
    switch (node.op) {
      case Op::kFull:
        return ConstantOf(type, node.attrs.find("value")->second);
      case Op::kIota:
        return IotaExpr(node, coords, type);
      case Op::kRandom:
        return RandomExpr(node, coords);
      case Op::kCopy:
        return Eval(node.operands[0], coords, guard);
      case Op::kPad:
        return PadExpr(node, coords, guard);
      case Op::kConcat:
        return ConcatExpr(node, coords, guard);
      case Op::kTake:
        return TakeExpr(node, coords, guard);
      case Op::kGather:
        return GatherExpr(node, coords, guard);
      default:
        break;
    }
    if (ir::KindOf(node.op) != OpKind::kPointwise) {
      Fail(ir::kNoValue);
      return kNoExpr;
    }
    std::vector<ExprId> args;
    for (ValueId operand : node.operands) {
      args.push_back(Eval(operand, coords, guard));
      if (args.back() == kNoExpr) return kNoExpr;
    }
    if (node.op == Op::kCast && exprs_.at(args[0]).type == type) return args[0];
    if (guard != kNoExpr && DividesIntegers(node.op, type)) {
      args[1] = Scalar(Op::kWhere, type, {guard, args[1], Integer(type, 1)});
    }
    return Scalar(node.op, type, std::move(args));
  }

  ExprId Scalar(Op op, DType type, std::vector<ExprId> args) { return exprs_.Scalar(op, type, std::move(args)); }
  ExprId ConstantOf(DType type, const ir::Attr& value) { return exprs_.Constant(type, ir::ToScalar(value)); }
  ExprId Number(DType type, double number) { return exprs_.Constant(type, number); }
  ExprId Integer(DType type, int64_t number) { return exprs_.Constant(type, number); }

  ExprId PositionExpr(const IndexExpr& position) {
    if (UsesDynamic(position)) {
      // One computed position, plain: the value itself, scaled.
      ExprId sum = Integer(DType::kInt64, position.constant);
      for (const Term& term : position.terms) {
        ExprId part = kNoExpr;
        if (term.dim < Atoms()) {
          IndexExpr alone;
          alone.terms = {term};
          part = PositionExpr(alone);
        } else if (term.divisor == 1 && term.modulus == 0 && !dynamic_[term.dim - Atoms()].wrap) {
          part = dynamic_[term.dim - Atoms()].value;
          if (exprs_.at(part).type != DType::kInt64) part = Scalar(Op::kCast, DType::kInt64, {part});
          part = Scalar(Op::kMul, DType::kInt64, {part, Integer(DType::kInt64, term.coefficient)});
        } else {
          Fail(ir::kNoValue);
          return kNoExpr;
        }
        sum = Scalar(Op::kAdd, DType::kInt64, {sum, part});
      }
      return sum;
    }
    Inst inst;
    inst.code = Code::kIndex;
    inst.type = DType::kInt64;
    inst.index = position;
    return exprs_.Add(std::move(inst));
  }

  ExprId IotaExpr(const Node& node, const Coords& coords, DType type) {
    const ir::Scalar start = ir::ToScalar(node.attrs.find("start")->second);
    const ir::Scalar step = ir::ToScalar(node.attrs.find("step")->second);
    const IndexExpr& at = coords[ir::IntAttr(node, "dim")];
    const auto whole = [](const ir::Scalar& s) {
      const double number = ir::ToDouble(s);
      return number == static_cast<double>(ir::ToInt64(s)) && number > -9e15 && number < 9e15;
    };
    if (!ir::IsFloat(type) || (whole(start) && whole(step))) {
      const ExprId position = PositionExpr(AddConstant(Scale(at, ir::ToInt64(step)), ir::ToInt64(start)));
      if (position == kNoExpr || type == DType::kInt64) return position;
      return Scalar(Op::kCast, type, {position});
    }
    const ExprId position = PositionExpr(at);
    if (position == kNoExpr) return kNoExpr;
    const ExprId real = Scalar(Op::kCast, DType::kFloat64, {position});
    const ExprId scaled = Scalar(Op::kMul, DType::kFloat64, {real, Number(DType::kFloat64, ir::ToDouble(step))});
    const ExprId sum = Scalar(Op::kAdd, DType::kFloat64, {scaled, Number(DType::kFloat64, ir::ToDouble(start))});
    return type == DType::kFloat64 ? sum : Scalar(Op::kCast, type, {sum});
  }

  ExprId RandomExpr(const Node& node, const Coords& coords) {
    const ExprId seed = Eval(node.operands[0], Coords(graph_.type(node.operands[0]).sizes.size()), kNoExpr);
    if (seed == kNoExpr) return kNoExpr;
    Inst inst;
    inst.code = Code::kRandom;
    inst.type = DType::kFloat32;
    inst.args = {seed};
    inst.integer = ir::IntAttr(node, "stream");
    inst.index = Linearize(coords, graph_.type(node.results[0]).sizes);
    if (UsesDynamic(inst.index)) {
      Fail(ir::kNoValue);
      return kNoExpr;
    }
    return exprs_.Add(std::move(inst));
  }

  // low <= position < high; kNoExpr when that is always so.
  ExprId InBounds(const IndexExpr& position, int64_t low, int64_t high, ExprId guard) {
    const Range range = RangeOf(position, sizes_);
    if (range.low >= low && range.high < high) return guard;
    if (UsesDynamic(position)) {
      Fail(ir::kNoValue);
      return kNoExpr;
    }
    Inst inst;
    inst.code = Code::kInBounds;
    inst.type = DType::kBool;
    inst.index = position;
    inst.low = low;
    inst.high = high;
    const ExprId inside = exprs_.Add(std::move(inst));
    return guard == kNoExpr ? inside : Scalar(Op::kAnd, DType::kBool, {guard, inside});
  }

  ExprId Select(ExprId condition, ExprId yes, ExprId no) {
    if (yes == kNoExpr || no == kNoExpr || condition == kNoExpr) return yes;
    const Inst& load = exprs_.at(yes);
    const Inst& other = exprs_.at(no);
    const bool zero =
        other.code == Code::kConstant && other.number == 0 && !std::signbit(other.number) && other.integer == 0;
    // A guarded load gives zero where the guard does not hold.
    if (zero && load.code == Code::kLoad && load.guard >= 0 && load.args[load.guard] == condition) return yes;
    return Scalar(Op::kWhere, load.type, {condition, yes, no});
  }

  ExprId PadExpr(const Node& node, const Coords& coords, ExprId guard) {
    const ir::Dims& low = ir::DimsAttr(node, "low");
    const ir::Dims& from = graph_.type(node.operands[0]).sizes;
    const DType type = graph_.type(node.results[0]).dtype;
    const ExprId fill = ConstantOf(type, node.attrs.find("value")->second);
    if (graph_.type(node.operands[0]).NumElements() == 0) return fill;
    Coords inner = coords;
    ExprId inside = kNoExpr;
    for (size_t d = 0; d < inner.size(); ++d) {
      inner[d] = AddConstant(std::move(inner[d]), -low[d]);
      inside = InBounds(inner[d], 0, from[d], inside);
    }
    if (inside == kNoExpr) return Bad() ? kNoExpr : Eval(node.operands[0], std::move(inner), guard);
    const ExprId both = guard == kNoExpr ? inside : Scalar(Op::kAnd, DType::kBool, {guard, inside});
    const ExprId value = Eval(node.operands[0], std::move(inner), both);
    return value == kNoExpr ? kNoExpr : Select(guard == kNoExpr ? both : inside, value, fill);
  }

  ExprId ConcatExpr(const Node& node, const Coords& coords, ExprId guard) {
    const int64_t dim = ir::IntAttr(node, "dim");
    int64_t end = graph_.type(node.results[0]).sizes[dim];
    ExprId result = kNoExpr;
    for (size_t i = node.operands.size(); i-- > 0 && !Bad();) {
      const int64_t size = graph_.type(node.operands[i]).sizes[dim];
      const int64_t start = end - size;
      end = start;
      if (graph_.type(node.operands[i]).NumElements() == 0) continue;
      const Range range = RangeOf(coords[dim], sizes_);
      if (range.high < start || range.low >= start + size) continue;
      const ExprId inside = InBounds(coords[dim], start, start + size, kNoExpr);
      const ExprId both = guard == kNoExpr || inside == kNoExpr ? std::max(guard, inside)
                                                                : Scalar(Op::kAnd, DType::kBool, {guard, inside});
      Coords inner = coords;
      inner[dim] = AddConstant(std::move(inner[dim]), -start);
      const ExprId value = Eval(node.operands[i], std::move(inner), both);
      if (value == kNoExpr) return kNoExpr;
      result = result == kNoExpr ? value : Scalar(Op::kWhere, exprs_.at(value).type, {inside, value, result});
    }
    return result;
  }

  static bool BoolAttr(const Node& node, std::string_view name) {
    const auto at = node.attrs.find(name);
    return at != node.attrs.end() && std::get<bool>(at->second);
  }

  ExprId TakeExpr(const Node& node, const Coords& coords, ExprId guard) {
    const int64_t dim = ir::IntAttr(node, "dim");
    const int64_t rank = graph_.type(node.operands[1]).rank();
    const ExprId index = Eval(node.operands[1], Coords(coords.begin() + dim, coords.begin() + dim + rank), guard);
    if (index == kNoExpr) return kNoExpr;
    Coords table(coords.begin(), coords.begin() + dim);
    table.push_back(DimIndex(Dynamic(index, graph_.type(node.operands[0]).sizes[dim], BoolAttr(node, "wrap"))));
    table.insert(table.end(), coords.begin() + dim + rank, coords.end());
    return Eval(node.operands[0], std::move(table), guard);
  }

  ExprId GatherExpr(const Node& node, const Coords& coords, ExprId guard) {
    const int64_t dim = ir::IntAttr(node, "dim");
    const ExprId index = Eval(node.operands[1], coords, guard);
    if (index == kNoExpr) return kNoExpr;
    Coords inner = coords;
    inner[dim] = DimIndex(Dynamic(index, graph_.type(node.operands[0]).sizes[dim], BoolAttr(node, "wrap")));
    return Eval(node.operands[0], std::move(inner), guard);
  }

  // --- addresses -----------------------------------------------------------------------------------------------------

  int32_t Atoms() const { return static_cast<int32_t>(group_.atoms.size()); }

  // A position that is a value: a dim of its own beyond the atoms.
  int32_t Dynamic(ExprId value, int64_t bound, bool wrap) {
    for (size_t i = 0; i < dynamic_.size(); ++i) {
      if (dynamic_[i].value == value && dynamic_[i].bound == bound && dynamic_[i].wrap == wrap) {
        return Atoms() + static_cast<int32_t>(i);
      }
    }
    dynamic_.push_back({value, bound, wrap});
    sizes_.push_back(std::max<int64_t>(bound, 1));
    return Atoms() + static_cast<int32_t>(dynamic_.size()) - 1;
  }

  bool UsesDynamic(const IndexExpr& expr) const {
    return std::any_of(expr.terms.begin(), expr.terms.end(), [&](const Term& term) { return term.dim >= Atoms(); });
  }

  void Address(BufferId buffer, const Strided& access, const Coords& coords, Inst* inst) {
    IndexExpr position = Constant(access.offset);
    for (size_t d = 0; d < coords.size(); ++d) position = Add(position, Scale(coords[d], access.strides[d]));
    inst->buffer = exprs_.BufferIndex(buffer);
    inst->index = Constant(position.constant);
    for (const Term& term : position.terms) {
      if (term.dim < Atoms()) {
        inst->index.terms.push_back(term);
        continue;
      }
      const DynamicDim& dynamic = dynamic_[term.dim - Atoms()];
      if (term.divisor != 1 || term.modulus != 0) return Fail(ir::kNoValue);
      IndirectTerm indirect;
      indirect.arg = static_cast<int32_t>(inst->args.size());
      indirect.stride = term.coefficient;
      indirect.bound = dynamic.bound;
      indirect.wrap = dynamic.wrap;
      ExprId value = dynamic.value;
      const DType type = exprs_.at(value).type;
      if (type != DType::kInt64 && type != DType::kInt32) value = Scalar(Op::kCast, DType::kInt64, {value});
      inst->args.push_back(value);
      inst->indirect.push_back(indirect);
    }
  }

  ExprId Load(const Strided& access, const Coords& coords, ExprId guard) {
    const ir::TensorType& type = graph_.type(access.base);
    if (!type.plain || !ir::IsFusable(type.dtype)) {
      Fail(ir::kNoValue);
      return kNoExpr;
    }
    Inst load;
    load.code = Code::kLoad;
    load.type = type.dtype;
    Address(buffers_.Of(access.base), access, coords, &load);
    if (Bad()) return kNoExpr;
    if (guard != kNoExpr) {
      load.guard = static_cast<int32_t>(load.args.size());
      load.args.push_back(guard);
    }
    return exprs_.Add(std::move(load));
  }

  // --- the kernel ----------------------------------------------------------------------------------------------------

  void Finish(const NestRequest& request, std::string name, std::vector<Step>& steps) {
    std::vector<int64_t> extents;
    std::vector<DType> dtypes;
    for (const auto& [root, index] : partial_roots_) {
      const BufferId buffer = buffers_.AddTemporary(ir::Contiguous(exprs_.roots[root].type, {1}), "partial");
      exprs_.roots[root].buffer = exprs_.BufferIndex(buffer);
    }
    for (BufferId buffer : exprs_.buffers) {
      extents.push_back(ir::StorageExtent(buffers_.buffer(buffer).type));
      dtypes.push_back(buffers_.buffer(buffer).type.dtype);
    }
    const std::vector<BufferId> arguments = exprs_.buffers;
    std::vector<std::pair<int32_t, size_t>> partials;
    for (const auto& [root, index] : partial_roots_) partials.emplace_back(exprs_.roots[root].buffer, index);
    Scheduled scheduled = Schedule(std::move(exprs_), request, extents, dtypes, options_);
    scheduled.kernel.name = std::move(name);
    std::set<std::string> sources;
    for (int32_t item : group_.items) {
      const auto& from = graph_.node(fusion_.item(item).node).sources;
      sources.insert(from.begin(), from.end());
    }
    scheduled.kernel.sources.assign(sources.begin(), sources.end());
    for (const auto& [argument, index] : partials) DescribePartial(scheduled, argument, arguments[argument], index);
    steps.push_back(Launch{std::move(scheduled.kernel), arguments});
  }

  void DescribePartial(const Scheduled& scheduled, int32_t argument, BufferId buffer, size_t index) {
    const Node& node = graph_.node(fusion_.item(group_.items[index]).node);
    Partial partial;
    partial.buffer = buffer;
    partial.shards = scheduled.kernel.shards;
    const int64_t extent = scheduled.kernel.buffers[argument].extent;
    partial.shard_elements = extent / partial.shards;
    buffers_.SetSizes(buffer, {partial.shards, partial.shard_elements});
    for (const IndexExpr& coord : KeptCoords(node, ItemPoint(index))) {
      std::vector<Term> terms = coord.terms;
      std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) { return a.coefficient > b.coefficient; });
      std::vector<Partial::Part> parts;
      for (const Term& term : terms) {
        const int64_t stride = partial.shard_elements == 1 ? 0 : scheduled.column_strides[term.dim];
        const Partial::Part part{term.coefficient, group_.atoms[term.dim], stride};
        if (!parts.empty() && parts.back().stride == part.stride * part.size) {
          parts.back() = Partial::Part{part.divisor, parts.back().size * part.size, part.stride};
        } else {
          parts.push_back(part);
        }
      }
      if (parts.empty()) parts.push_back(Partial::Part{1, 1, 0});
      partial.parts.push_back(std::move(parts));
    }
    buffers_.partials[node.results[0]] = std::move(partial);
  }

  struct DynamicDim {
    ExprId value;
    int64_t bound;
    bool wrap;
  };

  const FusionGraph& fusion_;
  const ir::Graph& graph_;
  Group group_;
  const std::vector<bool>& stored_;
  const FuseOptions& options_;
  BufferTable& buffers_;

  ExprGraph exprs_;
  ir::Dims sizes_;  // atoms, then the bounds of dynamic dims
  std::vector<DynamicDim> dynamic_;
  std::map<size_t, ExprId> item_exprs_;                   // by index into group_.items
  std::vector<std::pair<size_t, size_t>> partial_roots_;  // root, index into group_.items
  bool position_results_ = false;
  bool reduces_all_ = false;
  Split split_;
  LowerFailure failure_;
};

}  // namespace

LowerFailure LowerGroup(const FusionGraph& fusion, const Group& group, const std::vector<bool>& stored,
                        const FuseOptions& options, BufferTable& buffers, std::vector<Step>& steps) {
  return Lowering(fusion, group, stored, options, buffers).Run(steps);
}

}  // namespace stepone::loops
