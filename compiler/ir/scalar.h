// Numbers outside of tensors, and torch's rules for them.
#ifndef STEPONE_COMPILER_IR_SCALAR_H_
#define STEPONE_COMPILER_IR_SCALAR_H_

#include <cstdint>
#include <variant>

#include "compiler/ir/graph.h"
#include "compiler/ir/types.h"

namespace stepone::ir {

// A Python number. Its kind counts in dtype promotion.
using Scalar = std::variant<bool, int64_t, double>;

double ToDouble(const Scalar& scalar);
int64_t ToInt64(
    const Scalar& scalar);  // floats towards zero; what does not fit (or is NaN) becomes the smallest int64_t

// `value` as it is after being stored as `dtype`, half to even. REQUIRES: a float dtype.
double RoundTo(DType dtype, double value);
// `value` as it is after being stored as `dtype`: wraps. REQUIRES: an integer dtype or bool.
int64_t WrapTo(DType dtype, int64_t value);

// The scalar as an element of `dtype`: a double for float dtypes, an int64_t for integers, a bool for bool: what
// kFull's attribute `value` holds. REQUIRES: dtype is fusable.
Scalar Convert(const Scalar& scalar, DType dtype);
Attr ToAttr(const Scalar& scalar);
Scalar ToScalar(const Attr& attr);  // REQUIRES: not Dims

// torch's dtype lattice for two tensors with dimensions.
DType Promote(DType a, DType b);

// The dtype in which torch computes an op of tensors and Python numbers: tensors with dimensions decide, then those
// without, then numbers, each only where its kind (bool, integer, float) is higher than what was found before.
class ResultType {
 public:
  void AddTensor(const TensorType& type);
  void AddScalar(const Scalar& scalar);
  // REQUIRES: something was added.
  DType Get() const;

 private:
  static int Kind(DType dtype);
  // By priority: tensors with dimensions, without, numbers. kOther: none yet.
  DType found_[3] = {DType::kOther, DType::kOther, DType::kOther};
  void Add(int priority, DType dtype);
};

// Where arithmetic of `dtype` happens: float32 for the 16-bit floats, else the dtype itself.
DType ComputeType(DType dtype);

}  // namespace stepone::ir

#endif  // STEPONE_COMPILER_IR_SCALAR_H_
