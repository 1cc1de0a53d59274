// What decomposition rules are made of: one call with its arguments and declared results, and tables of rules.
#ifndef STEPONE_COMPILER_PASSES_DECOMPOSITIONS_RULE_H_
#define STEPONE_COMPILER_PASSES_DECOMPOSITIONS_RULE_H_

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/ir/graph.h"
#include "compiler/passes/pass.h"

namespace stepone::passes {

// One call while it is decomposed. Accessors for arguments record a failure in the builder when the argument is missing
// or of another kind, and return something harmless.
class CallSite {
 public:
  CallSite(ir::Builder& builder, const ir::Node& node, const PassOptions& options)
      : builder_(builder), node_(node), options_(options) {}

  ir::Builder& builder() { return builder_; }
  const std::string& op() const { return node_.call->op; }
  const PassOptions& options() const { return options_; }

  bool IsNone(std::string_view name) const;  // also when there is no such argument
  bool IsTensor(std::string_view name) const;
  bool IsNumber(std::string_view name) const;  // bool, integer or float

  ir::Expr Tensor(std::string_view name);
  std::optional<ir::Expr> OptionalTensor(std::string_view name);
  std::vector<ir::Expr> Tensors(std::string_view name);  // no None among them
  std::vector<std::optional<ir::Expr>> OptionalTensors(std::string_view name);
  ir::Scalar Number(std::string_view name);
  std::optional<ir::Scalar> OptionalNumber(std::string_view name);
  int64_t Int(std::string_view name);
  std::optional<int64_t> OptionalInt(std::string_view name);
  double Float(std::string_view name);
  bool Bool(std::string_view name);
  ir::Dims Ints(std::string_view name);          // a single integer counts as a list of one
  ir::Dims OptionalInts(std::string_view name);  // empty for None
  std::vector<bool> Bools(std::string_view name);
  std::string String(std::string_view name);  // empty for None

  int num_results() const { return static_cast<int>(node_.results.size()); }
  // nullptr for a result that nobody uses.
  const ir::TensorType* Result(int i) const;
  // Of the first result; `x`'s when nobody uses it.
  ir::DType ResultDType(ir::Expr x, int i = 0) const;
  // Of the first result, where the call makes no sense without it.
  const ir::TensorType& ResultType();

 private:
  const ir::ArgumentValue* Find(std::string_view name) const { return node_.call->Find(name); }
  void FailArgument(std::string_view name, std::string_view expected);

  ir::Builder& builder_;
  const ir::Node& node_;
  const PassOptions& options_;
  const ir::TensorType nothing_ = ir::Contiguous(ir::DType::kFloat32, {});
};

// One value per result of the call, in order; entries of results that nobody uses may be anything. Nothing: the call
// stays a call. Sizes and dtypes must be the declared ones: what pretends otherwise is an error of the request.
using Results = std::optional<std::vector<ir::Expr>>;

struct Rule {
  std::string_view op;
  Results (*apply)(CallSite& site);
};

using Rules = std::vector<Rule>;
Rules ArithmeticRules();
Rules UnaryRules();
Rules ComparisonRules();
Rules ActivationRules();
Rules ActivationBackwardRules();
Rules CreationRules();
Rules ViewRules();
Rules MoveRules();
Rules ReductionRules();
Rules SoftmaxRules();
Rules LossRules();
Rules LayerNormRules();
Rules BatchNormRules();
Rules RandomRules();
Rules IndexingRules();

// --- used by several families ---

inline Results One(ir::Expr x) { return std::vector<ir::Expr>{x}; }
inline Results Keep() { return std::nullopt; }

// x in float32 when it is a 16-bit float.
inline ir::Expr Wide(ir::Expr x) { return Cast(x, ir::ComputeType(x.dtype())); }
// A tensor without dimensions as one with a single one, and anything else as it is.
inline ir::Expr AtLeast1d(ir::Expr x) { return x.rank() == 0 ? Reshape(x, {1}) : x; }

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_DECOMPOSITIONS_RULE_H_
