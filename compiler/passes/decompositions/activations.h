// Pieces of activation functions that forward and backward rules share.
#ifndef STEPONE_COMPILER_PASSES_DECOMPOSITIONS_ACTIVATIONS_H_
#define STEPONE_COMPILER_PASSES_DECOMPOSITIONS_ACTIVATIONS_H_

#include "compiler/ir/builder.h"

namespace stepone::passes {

inline constexpr double kGeluKappa = 0.044715;

ir::Expr Logistic(ir::Expr x);
// What the tanh of gelu's approximation is taken of: sqrt(2/pi) * (x + kappa * x^3).
ir::Expr GeluInner(ir::Expr x);
// log(1 + exp(beta * x)) / beta, and x itself where beta * x > threshold.
ir::Expr Softplus(ir::Expr x, double beta, double threshold);

}  // namespace stepone::passes

#endif  // STEPONE_COMPILER_PASSES_DECOMPOSITIONS_ACTIVATIONS_H_
