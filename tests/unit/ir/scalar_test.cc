#include "compiler/ir/scalar.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace stepone::ir {
namespace {

TEST(Scalar, RoundsHalfToEven) {
  EXPECT_EQ(RoundTo(DType::kBFloat16, 1.00390625), 1.0);       // halfway between 1 and 1.0078125
  EXPECT_EQ(RoundTo(DType::kBFloat16, 1.01171875), 1.015625);  // halfway, to the even one above
  EXPECT_EQ(RoundTo(DType::kFloat16, 2049), 2048);
  EXPECT_EQ(RoundTo(DType::kFloat16, 2051), 2052);
  EXPECT_EQ(RoundTo(DType::kFloat16, 65519), 65504);
  EXPECT_EQ(RoundTo(DType::kFloat16, 65520), std::numeric_limits<double>::infinity());
  EXPECT_EQ(RoundTo(DType::kFloat16, std::ldexp(1.0, -24)), std::ldexp(1.0, -24));  // the smallest subnormal
  EXPECT_EQ(RoundTo(DType::kFloat16, std::ldexp(1.0, -26)), 0);
  EXPECT_EQ(RoundTo(DType::kFloat32, 16777217.0), 16777216.0);
  EXPECT_TRUE(std::isnan(RoundTo(DType::kBFloat16, std::nan(""))));
  EXPECT_TRUE(std::signbit(RoundTo(DType::kFloat16, -0.0)));
}

TEST(Scalar, IntegersWrapAndFloatsAreCut) {
  EXPECT_EQ(WrapTo(DType::kUInt8, 300), 44);
  EXPECT_EQ(WrapTo(DType::kInt8, 200), -56);
  EXPECT_EQ(WrapTo(DType::kBool, 256), 1);
  EXPECT_EQ(Convert(Scalar(-1.9), DType::kInt32), Scalar(int64_t{-1}));
  EXPECT_EQ(Convert(Scalar(0.5), DType::kBool), Scalar(true));
  EXPECT_EQ(Convert(Scalar(true), DType::kFloat32), Scalar(1.0));
  EXPECT_EQ(ToInt64(Scalar(std::nan(""))), INT64_MIN);
  EXPECT_EQ(ToInt64(Scalar(1e30)), INT64_MIN);
}

TEST(Promote, IsTorchsLattice) {
  EXPECT_EQ(Promote(DType::kBFloat16, DType::kFloat16), DType::kFloat32);
  EXPECT_EQ(Promote(DType::kUInt8, DType::kInt8), DType::kInt16);
  EXPECT_EQ(Promote(DType::kInt64, DType::kFloat16), DType::kFloat16);
  EXPECT_EQ(Promote(DType::kBool, DType::kUInt8), DType::kUInt8);
  EXPECT_EQ(Promote(DType::kFloat64, DType::kComplex64), DType::kComplex128);
  EXPECT_EQ(Promote(DType::kInt32, DType::kInt64), DType::kInt64);
}

TEST(ResultType, DimsBeforeNoneBeforeNumbers) {
  const auto of = [](std::vector<TensorType> tensors, std::vector<Scalar> numbers) {
    ResultType type;
    for (const auto& tensor : tensors) type.AddTensor(tensor);
    for (const auto& number : numbers) type.AddScalar(number);
    return type.Get();
  };
  const auto tensor = [](DType dtype) { return Contiguous(dtype, {3}); };
  const auto single = [](DType dtype) { return Contiguous(dtype, {}); };
  EXPECT_EQ(of({tensor(DType::kBFloat16), single(DType::kFloat64)}, {}), DType::kBFloat16);
  EXPECT_EQ(of({tensor(DType::kInt32), single(DType::kFloat64)}, {}), DType::kFloat64);
  EXPECT_EQ(of({tensor(DType::kInt8)}, {Scalar(int64_t{300})}), DType::kInt8);
  EXPECT_EQ(of({tensor(DType::kInt8)}, {Scalar(1.5)}), DType::kFloat32);
  EXPECT_EQ(of({tensor(DType::kBool)}, {Scalar(int64_t{1})}), DType::kInt64);
  EXPECT_EQ(of({single(DType::kFloat16)}, {Scalar(1.5)}), DType::kFloat16);
  EXPECT_EQ(of({tensor(DType::kBFloat16), tensor(DType::kFloat32)}, {}), DType::kFloat32);
}

}  // namespace
}  // namespace stepone::ir
