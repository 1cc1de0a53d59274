// The compiler's graph: functional, typed, in static single assignment, with numbers for sizes.
//
// Semantics that every pass relies on:
//  * Broadcasting and dtype promotion are explicit: operands of a pointwise op have the result's sizes, and all
//  operands
//    and the result have one dtype, but for cast, comparisons and isnan (result bool) and where (first operand bool).
//  * A value is its elements; strides matter only where a value meets memory (inputs, outputs, extern operands and
//    results). Views are maps of positions and never promise shared memory. Aliasing between outputs and inputs that
//    the caller can see is kept outside of the graph (Output::alias_of).
//  * Float ops follow IEEE 754 with default rounding; NaN propagates; subnormals are kept. Sums may be reassociated, in
//    an order that depends on shapes only. Nothing else may be reassociated, contracted or approximated beyond the ulp
//    bounds of codegen's functions (fused multiply-add of a product that has one use is allowed).
//  * Integer arithmetic wraps. bool is 0 or 1.
//  * bfloat16 and float16 arithmetic is written as cast to float32, op, cast back, by the decompositions; a kernel may
//    drop a pair of casts only where torch's own kernel computes in float32 across it.
//  * random(seed, stream) is a pure function of (seed, stream, row-major element position).
//  * An extern call that draws random numbers, mutates an operand or may alias one is ordered against the other such
//    calls (Node::call->effects); all other nodes may move freely between their operands and their uses.
#ifndef STEPONE_COMPILER_IR_GRAPH_H_
#define STEPONE_COMPILER_IR_GRAPH_H_

#include <complex>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "compiler/ir/types.h"

namespace stepone::ir {

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;
inline constexpr NodeId kNoNode = -1;

enum class Op : uint8_t {
#define STEPONE_OP(enumerator, name, operands, kind) enumerator,
#include "compiler/ir/ops.def"
#undef STEPONE_OP
};

enum class OpKind : uint8_t { kSource, kSeed, kPointwise, kRandom, kReduction, kView, kMove, kIndexed, kExtern };

std::string_view Name(Op op);
OpKind KindOf(Op op);
int NumOperands(Op op);  // -1: varies
std::optional<Op> OpFromName(std::string_view name);

// Attributes of primitive ops: dims, dim, start, step, value, stream, low, high, wrap, skip.
using Attr = std::variant<int64_t, double, bool, Dims>;
using Attrs = std::map<std::string, Attr, std::less<>>;

// One argument of an extern call, as the request gave it; values refer to the node's operands.
struct NoneArg {
  bool operator==(const NoneArg&) const = default;
};
struct OperandRef {
  int32_t operand;  // index into Node::operands
  bool operator==(const OperandRef&) const = default;
};
struct OperandList {
  std::vector<int32_t> operands;  // indices into Node::operands; -1: None
  bool operator==(const OperandList&) const = default;
};
struct DeviceArg {
  std::string type;
  bool operator==(const DeviceArg&) const = default;
};
struct LayoutArg {
  std::string name;
  bool operator==(const LayoutArg&) const = default;
};
struct MemoryFormatArg {
  std::string name;
  bool operator==(const MemoryFormatArg&) const = default;
};
using ArgumentValue = std::variant<NoneArg, OperandRef, OperandList, int64_t, double, bool, std::string, Dims,
                                   std::vector<double>, std::vector<bool>, std::vector<std::string>, DType, DeviceArg,
                                   LayoutArg, MemoryFormatArg, std::complex<double>>;
struct Argument {
  std::string name;
  ArgumentValue value;
  bool operator==(const Argument&) const = default;
};

// A call of an ATen (or custom) op through the dispatcher.
struct Call {
  std::string op;  // "aten.convolution.default"
  std::vector<Argument> arguments;
  bool results_are_list = false;
  std::vector<int32_t> result_aliases;    // per result: index into operands of what it may share storage with, or -1
  std::vector<int32_t> mutated_operands;  // indices into operands
  bool uses_rng = false;

  // Draws random numbers, mutates or may alias: keeps its place among such calls.
  bool effects() const;
  const ArgumentValue* Find(std::string_view name) const;  // nullptr: no such argument
};

struct Value {
  TensorType type;
  NodeId producer = kNoNode;  // kNoNode: a graph input or constant
  int32_t result = 0;         // which result of the producer
  std::string name;           // for people
};

struct Node {
  Op op;
  std::vector<ValueId> operands;
  std::vector<ValueId> results;  // kNoValue for a result that nobody uses (extern calls only)
  Attrs attrs;
  std::shared_ptr<const Call> call;  // kAten only
  std::vector<std::string> sources;  // names of the request's nodes that this one stands for
};

// What comes back to the caller: a value, a number, or nothing.
struct Output {
  ValueId value = kNoValue;
  std::optional<int64_t> number;
};

struct Constant {
  ValueId value;
  std::string data;  // contiguous elements, little-endian
};

enum class Role : uint8_t { kForward = 1, kBackward = 2, kJoint = 3, kInference = 4 };

// Not thread-safe. Ids are dense and stay valid, and so do references to values and nodes; order() is topological.
class Graph {
 public:
  Role role = Role::kForward;
  std::vector<ValueId> inputs;                        // kNoValue for an input that is a number
  std::vector<std::optional<int64_t>> input_numbers;  // per input: the number it must equal
  std::vector<Constant> constants;
  std::vector<Output> outputs;

  ValueId AddValue(TensorType type, std::string name = "");  // an input or constant: the caller registers it
  // Appends a node and one new value per result type. Returns the node.
  NodeId AddNode(Op op, std::vector<ValueId> operands, std::vector<TensorType> results, Attrs attrs = {},
                 std::vector<std::string> sources = {});
  // The usual case: one result, whose value is returned.
  ValueId Add(Op op, std::vector<ValueId> operands, TensorType result, Attrs attrs = {},
              std::vector<std::string> sources = {});

  // Widens the node's results to one per entry of `used`: kNoValue where it is false. REQUIRES: as many true entries as
  // the node has results.
  void SetResultsUsed(NodeId id, const std::vector<bool>& used);

  const std::vector<NodeId>& order() const { return order_; }
  void set_order(std::vector<NodeId> order) { order_ = std::move(order); }  // a pass that drops or moves nodes
  void AppendToOrder(NodeId id) { order_.push_back(id); }  // a pass that rebuilds the order while it adds nodes

  Node& node(NodeId id) { return nodes_[id]; }
  const Node& node(NodeId id) const { return nodes_[id]; }
  Value& value(ValueId id) { return values_[id]; }
  const Value& value(ValueId id) const { return values_[id]; }
  const TensorType& type(ValueId id) const { return values_[id].type; }
  int32_t num_values() const { return static_cast<int32_t>(values_.size()); }
  int32_t num_nodes() const { return static_cast<int32_t>(nodes_.size()); }  // dropped ones included

  // Every operand and output that is `from` becomes `to`.
  void ReplaceUses(ValueId from, ValueId to);
  // Per value: the nodes in order() that use it, in order, each once.
  std::vector<std::vector<NodeId>> Users() const;
  // Drops nodes without effects whose results nobody uses. Returns whether there were any.
  bool RemoveDead();

 private:
  // Deques: references to values and nodes stay valid while more are added.
  std::deque<Value> values_;
  std::deque<Node> nodes_;
  std::vector<NodeId> order_;
};

// Attribute access; REQUIRES: it is there and has that type (the verifier checks).
int64_t IntAttr(const Node& node, std::string_view name);
double FloatAttr(const Node& node, std::string_view name);
const Dims& DimsAttr(const Node& node, std::string_view name);
int64_t IntAttrOr(const Node& node, std::string_view name, int64_t missing);

}  // namespace stepone::ir

#endif  // STEPONE_COMPILER_IR_GRAPH_H_
