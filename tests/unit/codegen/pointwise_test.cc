// Every pointwise op on every dtype that has it, random numbers, and the shapes of pointwise kernels.
#include "compiler/ir/graph.h"
#include "compiler/ir/types.h"
#include "gtest/gtest.h"
#include "proto/str_cat.h"
#include "tests/unit/codegen/kernel_maker.h"
#include "tests/unit/codegen/kernel_runner.h"

namespace stepone::codegen {
namespace {

using ir::DType;
using ir::Op;
using loops::Code;

std::string Blank(DType type, int64_t count) { return std::string(ir::ByteSize(type) * count, 'x'); }

Tolerance ToleranceOf(DType type) {
  if (type == DType::kBFloat16) return {.relative = 0.008};
  if (type == DType::kFloat16) return {.relative = 0.001};
  return {};
}

// out = op(args), over 43 elements.
void CheckOp(Op op, DType arg_type, DType type, bool positive = false) {
  SCOPED_TRACE(StrCat(ir::Name(op), " ", ir::Name(arg_type), " -> ", ir::Name(type)));
  constexpr int64_t kCount = 43;
  KernelMaker make({kCount}, 0, 0);
  std::vector<std::string> buffers;
  std::vector<int32_t> in;
  for (int i = 0; i < ir::NumOperands(op); ++i) {
    const DType in_type = op == Op::kWhere && i == 0 ? DType::kBool : arg_type;
    in.push_back(make.In(in_type, kCount));
    buffers.push_back(RandomElements(in_type, kCount, 7 + i));
  }
  const int32_t out = make.Out(type, kCount);
  buffers.push_back(Blank(type, kCount));
  make.Element();
  std::vector<Id> args;
  for (int32_t buffer : in) {
    Id x = make.Load(buffer, Index({1}));
    if (positive) x = make.Op(Op::kAbs, {x});
    args.push_back(x);
  }
  make.Store(out, Index({1}), make.Op(op, type, args));
  ExpectLikeInterpreter(make.kernel, buffers, ToleranceOf(type));
}

const DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16};
const DType kIntegers[] = {DType::kInt64, DType::kInt32, DType::kInt16, DType::kInt8, DType::kUInt8};

TEST(PointwiseTest, FloatOps) {
  for (DType type : kFloats) {
    for (Op op : {Op::kNeg,        Op::kAbs,     Op::kSign,    Op::kExp,   Op::kExpm1, Op::kSin,      Op::kCos,
                  Op::kTanh,       Op::kSigmoid, Op::kErf,     Op::kFloor, Op::kCeil,  Op::kRound,    Op::kTrunc,
                  Op::kReciprocal, Op::kAdd,     Op::kSub,     Op::kMul,   Op::kDiv,   Op::kFloorDiv, Op::kRemainder,
                  Op::kFmod,       Op::kMaximum, Op::kMinimum, Op::kFmax,  Op::kFmin}) {
      CheckOp(op, type, type);
    }
    for (Op op : {Op::kLog, Op::kLog1p, Op::kSqrt, Op::kRsqrt, Op::kPow}) CheckOp(op, type, type, true);
    CheckOp(Op::kWhere, type, type);
  }
}

TEST(PointwiseTest, IntegerOps) {
  for (DType type : kIntegers) {
    for (Op op : {Op::kNeg, Op::kAbs, Op::kSign, Op::kNot, Op::kAdd, Op::kSub, Op::kMul, Op::kMaximum, Op::kMinimum,
                  Op::kAnd, Op::kOr, Op::kXor, Op::kWhere}) {
      CheckOp(op, type, type);
    }
  }
}

TEST(PointwiseTest, BoolOps) {
  for (Op op : {Op::kNot, Op::kAnd, Op::kOr, Op::kXor, Op::kWhere}) CheckOp(op, DType::kBool, DType::kBool);
}

TEST(PointwiseTest, Comparisons) {
  for (DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kInt64, DType::kInt32, DType::kUInt8,
                     DType::kBool}) {
    for (Op op : {Op::kEq, Op::kNe, Op::kLt, Op::kLe, Op::kGt, Op::kGe}) CheckOp(op, type, DType::kBool);
  }
  for (DType type : kFloats) CheckOp(Op::kIsNan, type, DType::kBool);
}

TEST(PointwiseTest, CastsBetweenAllDtypes) {
  for (int from = 1; from <= 10; ++from) {
    for (int to = 1; to <= 10; ++to) {
      const DType source = static_cast<DType>(from), target = static_cast<DType>(to);
      // A negative float as an unsigned integer is not defined.
      CheckOp(Op::kCast, source, target, ir::IsFloat(source) && target == DType::kUInt8);
    }
  }
}

// Integer division, with divisors that are never 0.
TEST(PointwiseTest, IntegerDivision) {
  for (DType type : kIntegers) {
    for (Op op : {Op::kFloorDiv, Op::kTruncDiv, Op::kRemainder, Op::kFmod}) {
      for (int divisor : {0, 3, -3, -1, 16}) {  // 0: from memory
        if (type == DType::kUInt8 && divisor < 0) continue;
        SCOPED_TRACE(StrCat(ir::Name(op), " ", ir::Name(type), " by ", divisor));
        KernelMaker make({29}, 0, 0);
        const int32_t a = make.In(type, 29), b = make.In(type, 29), out = make.Out(type, 29);
        make.Element();
        Id y = make.Load(b, Index({1}));
        y = divisor == 0 ? make.Op(Op::kOr, {y, make.Integer(1, type)}) : make.Integer(divisor, type);
        make.Store(out, Index({1}), make.Op(op, {make.Load(a, Index({1})), y}));
        ExpectLikeInterpreter(make.kernel, {RandomElements(type, 29, 3), RandomElements(type, 29, 4), Blank(type, 29)});
      }
    }
  }
}

loops::Kernel Divide(DType type, Op op, int64_t count) {
  KernelMaker make({count}, 0, 0);
  const int32_t a = make.In(type, count), b = make.In(type, count), out = make.Out(type, count);
  make.Element();
  make.Store(out, Index({1}), make.Op(op, {make.Load(a, Index({1})), make.Load(b, Index({1}))}));
  return make.kernel;
}

TEST(PointwiseTest, DivisionByZeroIsReportedWhereverItIs) {
  for (int64_t at : {0, 8, 18}) {
    std::vector<int32_t> a(19, 5), b(19, 2);
    b[at] = 0;
    for (Op op : {Op::kFloorDiv, Op::kTruncDiv, Op::kRemainder, Op::kFmod}) {
      auto loaded = LoadedKernel::Load(Divide(DType::kInt32, op, 19));
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      std::vector<std::string> buffers = {Bytes(a), Bytes(b), Blank(DType::kInt32, 19)};
      EXPECT_EQ((*loaded)->Run(buffers), STEPONE_KERNEL_DIVISION_BY_ZERO);
    }
  }
}

TEST(PointwiseTest, SmallestIntegerByMinusOneWraps) {
  const int64_t low64 = INT64_MIN;
  const int32_t low32 = INT32_MIN;
  auto wide = LoadedKernel::Load(Divide(DType::kInt64, Op::kFloorDiv, 3));
  ASSERT_TRUE(wide.ok()) << wide.status();
  std::vector<std::string> buffers = {Bytes<int64_t>({low64, low64, 7}), Bytes<int64_t>({-1, 3, -2}),
                                      Blank(DType::kInt64, 3)};
  ASSERT_EQ((*wide)->Run(buffers), 0);
  EXPECT_EQ(Values<int64_t>(buffers[2]), (std::vector<int64_t>{low64, -3074457345618258603, -4}));
  auto narrow = LoadedKernel::Load(Divide(DType::kInt32, Op::kRemainder, 3));
  ASSERT_TRUE(narrow.ok()) << narrow.status();
  buffers = {Bytes<int32_t>({low32, low32, 7}), Bytes<int32_t>({-1, 3, -2}), Blank(DType::kInt32, 3)};
  ASSERT_EQ((*narrow)->Run(buffers), 0);
  EXPECT_EQ(Values<int32_t>(buffers[2]), (std::vector<int32_t>{0, 1, -1}));
}

TEST(PointwiseTest, FloatFloorDivisionIsExact) {
  auto loaded = LoadedKernel::Load(Divide(kF32, Op::kFloorDiv, 6));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::vector<std::string> buffers = {Bytes<float>({0.9f, 4.5f, -0.9f, 7, -7, 1}),
                                      Bytes<float>({0.1f, 0.9f, 0.1f, -2, 2.5f, 0.1f}), Blank(kF32, 6)};
  ASSERT_EQ((*loaded)->Run(buffers), 0);
  EXPECT_EQ(Values<float>(buffers[2]), (std::vector<float>{8, 5, -9, -4, -3, 9}));
}

TEST(PointwiseTest, RemainderOfHugeQuotients) {
  for (Op op : {Op::kFmod, Op::kRemainder}) {
    auto loaded = LoadedKernel::Load(Divide(kF32, op, 5));
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    std::vector<std::string> buffers = {Bytes<float>({1e30f, -3e38f, 1e-40f, 16777217.f * 64, 5.5f}),
                                        Bytes<float>({3.7f, 1e-44f, 3e-45f, 0.1f, INFINITY}), Blank(kF32, 5)};
    const std::vector<float> a = Values<float>(buffers[0]), b = Values<float>(buffers[1]);
    ASSERT_EQ((*loaded)->Run(buffers), 0);
    for (int i = 0; i < 5; ++i) {
      float want = std::fmod(a[i], b[i]);
      if (op == Op::kRemainder && want != 0 && (want < 0) != (b[i] < 0)) want += b[i];
      EXPECT_EQ(Values<float>(buffers[2])[i], want) << i;
    }
  }
}

TEST(PointwiseTest, RandomNumbersEqualTheReferenceAtEveryAlignment) {
  for (int64_t columns : {1, 7, 16, 37, 64}) {
    for (int64_t base : {0, 5, 1 << 20}) {
      KernelMaker make({3, columns}, 1, 1);
      const int32_t seed = make.In(DType::kInt64, 1), out = make.Out(kF32, 3 * columns);
      make.Element();
      loops::Inst random;
      random.code = Code::kRandom;
      random.args = {make.Load(seed, Index({}))};
      random.integer = 11;
      random.index = Index({columns, 1}, base);
      make.Store(out, Index({columns, 1}), make.Add(random));
      ExpectLikeInterpreter(make.kernel, {Bytes<int64_t>({-123456789012345}), Blank(kF32, 3 * columns)},
                            {.relative = 0});
    }
  }
}

TEST(PointwiseTest, EveryLengthAndManyUnits) {
  for (int64_t count : {1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 67, 4096, 5000, 70001}) {
    SCOPED_TRACE(count);
    KernelMaker make({count}, 0, 0);
    const int32_t in = make.In(kF32, count), out = make.Out(kF32, count);
    make.Element();
    make.Store(out, Index({1}), make.Op(Op::kAdd, {make.Load(in, Index({1})), make.Number(0.1)}));
    ExpectLikeInterpreter(make.kernel, {RandomElements(kF32, count, 9), Blank(kF32, count)});
  }
}

}  // namespace
}  // namespace stepone::codegen
