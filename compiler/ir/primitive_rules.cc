#include "compiler/ir/primitive_rules.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/str_cat.h"

namespace stepone::ir {
namespace {

enum class Takes { kAny, kFloat, kNumber, kIntegral, kBool };

// What a pointwise or reduction op's operands may be; 16-bit floats are excluded everywhere but for kAny.
Takes OperandsOf(Op op) {
  switch (op) {
    case Op::kCast:
      return Takes::kAny;
    case Op::kExp:
    case Op::kExpm1:
    case Op::kLog:
    case Op::kLog1p:
    case Op::kSqrt:
    case Op::kRsqrt:
    case Op::kReciprocal:
    case Op::kSin:
    case Op::kCos:
    case Op::kTanh:
    case Op::kSigmoid:
    case Op::kErf:
    case Op::kFloor:
    case Op::kCeil:
    case Op::kRound:
    case Op::kTrunc:
    case Op::kIsNan:
    case Op::kDiv:
    case Op::kFmax:
    case Op::kFmin:
    case Op::kPow:
      return Takes::kFloat;
    case Op::kNot:
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor:
      return Takes::kIntegral;
    case Op::kAny:
    case Op::kAll:
      return Takes::kBool;
    case Op::kTruncDiv:
    case Op::kNeg:
    case Op::kAbs:
    case Op::kSign:
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kFloorDiv:
    case Op::kRemainder:
    case Op::kFmod:
    case Op::kSum:
    case Op::kProd:
      return Takes::kNumber;
    default:
      return Takes::kAny;
  }
}

bool Is16BitFloat(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

bool Fits(Takes takes, DType dtype) {
  switch (takes) {
    case Takes::kAny:
      return true;
    case Takes::kFloat:
      return IsFloat(dtype);
    case Takes::kNumber:
      return IsFloat(dtype) || IsInteger(dtype);
    case Takes::kIntegral:
      return IsInteger(dtype) || dtype == DType::kBool;
    case Takes::kBool:
      return dtype == DType::kBool;
  }
  return false;
}

bool IsComparison(Op op) {
  return op == Op::kEq || op == Op::kNe || op == Op::kLt || op == Op::kLe || op == Op::kGt || op == Op::kGe;
}

class Checker {
 public:
  Checker(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  PrimitiveFault Run() {
    if (Common()) Dispatch();
    if (fault_.rule.empty()) CheckNoOtherAttrs();
    return std::move(fault_);
  }

 private:
  void Fail(std::string_view rule, std::string message) {
    if (fault_.rule.empty()) fault_ = {rule, std::move(message)};
  }
  void Need(bool condition, std::string_view rule, std::string_view message) {
    if (!condition) Fail(rule, std::string(message));
  }
  bool ok() const { return fault_.rule.empty(); }

  const TensorType& operand(size_t i) const { return graph_.type(node_.operands[i]); }
  const TensorType& result() const { return graph_.type(node_.results[0]); }

  bool Common() {
    const int operands = NumOperands(node_.op);
    if (operands >= 0 && operands != static_cast<int>(node_.operands.size())) {
      Fail("arity", StrCat(Name(node_.op), " takes ", operands, " operands, not ", node_.operands.size()));
      return false;
    }
    if (node_.results.size() != 1) Fail("arity", "a primitive has one result");
    if (!ok()) return false;
    const auto usable = [](const TensorType& type) { return type.plain && IsFusable(type.dtype); };
    for (size_t i = 0; i < node_.operands.size(); ++i)
      Need(usable(operand(i)), "dtype", "an operand no kernel can read");
    Need(usable(result()), "dtype", "a result that no kernel can hold");
    return ok();
  }

  template <typename T>
  const T* AttrOf(std::string_view name) {
    attrs_.push_back(name);
    const auto found = node_.attrs.find(name);
    if (found == node_.attrs.end()) {
      Fail("attribute", StrCat("'", name, "' is missing"));
      return nullptr;
    }
    const T* value = std::get_if<T>(&found->second);
    if (value == nullptr) Fail("attribute", StrCat("'", name, "' is of the wrong kind"));
    return value;
  }

  // The attribute is an element of `dtype`: a float, an integer or a bool.
  void NeedElement(std::string_view name, DType dtype) {
    if (IsFloat(dtype)) {
      AttrOf<double>(name);
    } else if (dtype == DType::kBool) {
      AttrOf<bool>(name);
    } else {
      AttrOf<int64_t>(name);
    }
  }

  int64_t NeedDim(int64_t rank) {
    const int64_t* dim = AttrOf<int64_t>("dim");
    if (dim != nullptr && *dim >= 0 && *dim < rank) return *dim;
    Fail("attribute", "'dim' is out of range");
    return 0;
  }

  // Sorted, each once, in range, at least one.
  const Dims* NeedDims(int64_t rank) {
    const Dims* dims = AttrOf<Dims>("dims");
    if (dims == nullptr) return nullptr;
    bool good = !dims->empty() && dims->front() >= 0 && dims->back() < rank;
    for (size_t i = 1; good && i < dims->size(); ++i) good = (*dims)[i - 1] < (*dims)[i];
    Need(good, "attribute", "'dims' is not a sorted choice of the operand's dims");
    return ok() ? dims : nullptr;
  }

  void SameDType() { Need(operand(0).dtype == result().dtype, "dtype", "operand and result differ in dtype"); }

  void CheckNoOtherAttrs() {
    for (const auto& [name, attr] : node_.attrs) {
      if (std::find(attrs_.begin(), attrs_.end(), name) == attrs_.end()) {
        Fail("attribute", StrCat("'", name, "' means nothing here"));
      }
    }
  }

  void Dispatch() {
    switch (KindOf(node_.op)) {
      case OpKind::kSource:
        return Source();
      case OpKind::kSeed:
        return Need(result() == Contiguous(DType::kInt64, {1}), "type", "a seed is i64[1]");
      case OpKind::kRandom:
        return Random();
      case OpKind::kPointwise:
        return Pointwise();
      case OpKind::kReduction:
        return Reduction();
      case OpKind::kView:
        return View();
      case OpKind::kMove:
        return Move();
      case OpKind::kIndexed:
        return Indexed();
      case OpKind::kExtern:
        return Fail("stage", "not a primitive");
    }
  }

  void Source() {
    if (node_.op == Op::kFull) return NeedElement("value", result().dtype);
    Need(result().dtype != DType::kBool && !Is16BitFloat(result().dtype), "dtype",
         "iota is of numbers, not 16-bit floats");
    NeedDim(result().rank());
    NeedElement("start", result().dtype);
    NeedElement("step", result().dtype);
  }

  void Random() {
    Need(operand(0).dtype == DType::kInt64 && operand(0).sizes == Dims{1}, "type", "the seed is i64[1]");
    Need(result().dtype == DType::kFloat32, "dtype", "random numbers are f32");
    AttrOf<int64_t>("stream");
  }

  void Pointwise() {
    for (size_t i = 0; i < node_.operands.size(); ++i) {
      Need(operand(i).sizes == result().sizes, "sizes",
           "an operand's sizes are not the result's: broadcasting is explicit");
    }
    if (node_.op == Op::kCast) return;
    const size_t first = node_.op == Op::kWhere ? 1 : 0;
    if (first == 1) Need(operand(0).dtype == DType::kBool, "dtype", "the condition is not bool");
    const DType dtype = operand(first).dtype;
    for (size_t i = first; i < node_.operands.size(); ++i) {
      Need(operand(i).dtype == dtype, "dtype", "operands differ in dtype");
    }
    Need(!Is16BitFloat(dtype), "dtype", "16-bit floats are cast to f32 first");
    Need(Fits(OperandsOf(node_.op), dtype), "dtype", StrCat(Name(node_.op), " does not take ", Name(dtype)));
    if (node_.op == Op::kTruncDiv) Need(IsInteger(dtype), "dtype", "trunc_div is of integers");
    const bool bool_result = IsComparison(node_.op) || node_.op == Op::kIsNan;
    Need(result().dtype == (bool_result ? DType::kBool : dtype), "dtype", "the result's dtype does not follow");
  }

  void Reduction() {
    const Dims* dims = NeedDims(operand(0).rank());
    if (dims == nullptr) return;
    Dims sizes;
    int64_t count = 1;
    for (int64_t i = 0; i < operand(0).rank(); ++i) {
      if (std::binary_search(dims->begin(), dims->end(), i)) {
        count *= operand(0).sizes[i];
      } else {
        sizes.push_back(operand(0).sizes[i]);
      }
    }
    Need(sizes == result().sizes, "sizes", "the result has other sizes than what 'dims' leaves");
    const bool index = node_.op == Op::kArgMax || node_.op == Op::kArgMin;
    const bool extreme = index || node_.op == Op::kMax || node_.op == Op::kMin;
    Need(!extreme || count > 0, "sizes", "a maximum of nothing");
    const DType dtype = operand(0).dtype;
    Need(!Is16BitFloat(dtype), "dtype", "16-bit floats are cast to f32 first");
    Need(Fits(OperandsOf(node_.op), dtype), "dtype", StrCat(Name(node_.op), " does not take ", Name(dtype)));
    Need(result().dtype == (index ? DType::kInt64 : dtype), "dtype", "the result's dtype does not follow");
  }

  void View() {
    SameDType();
    const Dims& from = operand(0).sizes;
    const Dims& to = result().sizes;
    switch (node_.op) {
      case Op::kReshape:
        return Need(operand(0).NumElements() == result().NumElements(), "sizes", "numbers of elements differ");
      case Op::kPermute: {
        const Dims* dims = AttrOf<Dims>("dims");
        if (dims == nullptr) return;
        std::vector<bool> seen(from.size(), false);
        bool good = dims->size() == from.size() && to.size() == from.size();
        for (size_t i = 0; good && i < from.size(); ++i) {
          const int64_t dim = (*dims)[i];
          good = dim >= 0 && dim < operand(0).rank() && !seen[dim] && to[i] == from[dim];
          if (good) seen[dim] = true;
        }
        return Need(good, "attribute", "'dims' is not a permutation that gives these sizes");
      }
      case Op::kExpand: {
        bool good = from.size() == to.size();
        for (size_t i = 0; good && i < from.size(); ++i) good = from[i] == to[i] || from[i] == 1;
        return Need(good, "sizes", "only dims of size 1 expand");
      }
      case Op::kSlice: {
        const int64_t dim = NeedDim(operand(0).rank());
        const int64_t* start = AttrOf<int64_t>("start");
        const int64_t* step = AttrOf<int64_t>("step");
        if (!ok()) return;
        Dims others = from;
        others[dim] = to.size() == from.size() ? to[dim] : -1;
        const int64_t last = *start + (others[dim] - 1) * *step;
        return Need(others == to && *start >= 0 && *step >= 1 && (to[dim] == 0 || last < from[dim]), "sizes",
                    "the slice leaves the operand");
      }
      default:
        NeedDims(operand(0).rank());
        return Need(from == to, "sizes", "flipping changes no size");
    }
  }

  void Move() {
    if (node_.op == Op::kConcat) return Concat();
    SameDType();
    const Dims& from = operand(0).sizes;
    const Dims& to = result().sizes;
    if (node_.op == Op::kCopy) return Need(from == to, "sizes", "copying changes no size");
    const Dims* low = AttrOf<Dims>("low");
    const Dims* high = AttrOf<Dims>("high");
    NeedElement("value", result().dtype);
    if (!ok()) return;
    bool good = low->size() == from.size() && high->size() == from.size() && to.size() == from.size();
    for (size_t i = 0; good && i < from.size(); ++i) good = to[i] == from[i] + (*low)[i] + (*high)[i];
    Need(good, "sizes", "sizes do not follow from 'low' and 'high'");
  }

  void Concat() {
    Need(node_.operands.size() >= 1, "arity", "nothing to concatenate");
    const int64_t dim = NeedDim(result().rank());
    int64_t total = 0;
    for (size_t i = 0; ok() && i < node_.operands.size(); ++i) {
      Need(operand(i).dtype == result().dtype, "dtype", "operands differ in dtype");
      Dims others = operand(i).sizes;
      if (operand(i).rank() != result().rank()) return Fail("sizes", "operands differ in rank");
      total += others[dim];
      others[dim] = result().sizes[dim];
      Need(others == result().sizes, "sizes", "operands differ in another dim");
    }
    if (ok()) Need(total == result().sizes[dim], "sizes", "sizes along 'dim' do not add up");
  }

  void Indexed() {
    SameDType();
    const DType index = operand(1).dtype;
    Need(index == DType::kInt64 || index == DType::kInt32, "dtype", "an index is i64 or i32");
    const bool adds = node_.op == Op::kTakeGrad || node_.op == Op::kScatterAdd;
    Need(!adds || (!Is16BitFloat(result().dtype) && result().dtype != DType::kBool), "dtype",
         "16-bit floats and bool are cast first");
    switch (node_.op) {
      case Op::kTake:
        return Take(operand(0).sizes, result().sizes);
      case Op::kTakeGrad:
        AttrOf<int64_t>("skip");
        return Take(result().sizes, operand(0).sizes);
      default:
        return GatherOrScatter();
    }
  }

  // `rows` has the sizes of `table` with `dim` replaced by the index's.
  void Take(const Dims& table, const Dims& rows) {
    if (node_.op == Op::kTake) AttrOf<bool>("wrap");
    const int64_t dim = NeedDim(static_cast<int64_t>(table.size()));
    if (!ok()) return;
    Dims expected(table.begin(), table.begin() + dim);
    expected.insert(expected.end(), operand(1).sizes.begin(), operand(1).sizes.end());
    expected.insert(expected.end(), table.begin() + dim + 1, table.end());
    Need(expected == rows, "sizes", "rows have other sizes than table and index say");
  }

  void GatherOrScatter() {
    const int64_t dim = NeedDim(operand(0).rank());
    const Dims& index = operand(1).sizes;
    bool good = ok() && index.size() == operand(0).sizes.size();
    for (size_t i = 0; good && i < index.size(); ++i) {
      good = static_cast<int64_t>(i) == dim || index[i] <= operand(0).sizes[i];
    }
    Need(good, "sizes", "the index does not fit into the operand");
    if (node_.op == Op::kGather) return Need(result().sizes == index, "sizes", "the result has not the index's sizes");
    Need(operand(2).sizes == index, "sizes", "the source has not the index's sizes");
    Need(operand(2).dtype == result().dtype, "dtype", "source and result differ in dtype");
    Need(result().sizes == operand(0).sizes, "sizes", "the result has not the operand's sizes");
  }

  const Graph& graph_;
  const Node& node_;
  PrimitiveFault fault_;
  std::vector<std::string_view> attrs_;  // those that mean something
};

}  // namespace

PrimitiveFault CheckPrimitive(const Graph& graph, const Node& node) { return Checker(graph, node).Run(); }

}  // namespace stepone::ir
