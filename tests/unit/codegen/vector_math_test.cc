// How far the vector functions are off: swept over all exponents, around the places where they change their ways, and
// at special values. The bounds are those of compiler/codegen/README.md.
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "compiler/ir/graph.h"
#include "gtest/gtest.h"
#include "proto/str_cat.h"
#include "tests/unit/codegen/kernel_maker.h"
#include "tests/unit/codegen/kernel_runner.h"

namespace stepone::codegen {
namespace {

using ir::DType;
using ir::Op;

// A type whose own functions are right to far beyond half a unit of T's last place.
template <typename T>
using Wider = std::conditional_t<std::is_same_v<T, float>, double, long double>;
template <typename T>
using Bits = std::conditional_t<std::is_same_v<T, float>, uint32_t, uint64_t>;
template <typename T>
using Reference = std::function<Wider<T>(Wider<T>)>;

template <typename T>
struct Function {
  Op op;
  double bound;  // in units of the last place of the right result
  Reference<T> reference;
  std::vector<double> near;  // where a sweep must be dense: the function or its code changes there
};

template <typename T>
std::vector<Function<T>> Functions() {
  using W = Wider<T>;
  constexpr bool kWide = std::is_same_v<T, double>;
  const double high = kWide ? 709.782712893384 : 88.7228394, low = kWide ? -745.133219101941 : -103.97208;
  const double normal = kWide ? -708.396418532264 : -87.3365448;
  const std::vector<double> edges = {high, low, normal, -normal, 0, 0.34657359027997264};
  return {
      {Op::kExp, 1, [](W x) { return std::exp(x); }, edges},
      {Op::kExpm1, 2, [](W x) { return std::expm1(x); }, {high, 0, -17, -37, 0.34657359027997264}},
      {Op::kLog, 1, [](W x) { return std::log(x); }, {1, 0.7071067811865476, 1.4142135623730951}},
      {Op::kLog1p, 1.5, [](W x) { return std::log1p(x); }, {-1, 0, -0.2928932188134524, 0.4142135623730951}},
      {Op::kSin, 2.5, [](W x) { return std::sin(x); }, {0, 0.7853981633974483, 3.141592653589793, 30000, 1e6}},
      {Op::kCos, 2.5, [](W x) { return std::cos(x); }, {0, 0.7853981633974483, 1.5707963267948966, 30000, 1e6}},
      {Op::kTanh, 1.5, [](W x) { return std::tanh(x); }, {0, 0.6, -0.6, 9.01, 10, 19.1, 25}},
      {Op::kSigmoid, 2.5, [](W x) { return 1 / (1 + std::exp(-x)); }, {0, -high, low, 17, 37}},
      {Op::kErf, 1, [](W x) { return std::erf(x); }, {0, 0.98, 1, 3.95, 4, 5.9, 6}},
      {Op::kSqrt, 0.5, [](W x) { return std::sqrt(x); }, {0, 1, 2}},
      {Op::kRsqrt, 1.5, [](W x) { return 1 / std::sqrt(x); }, {0, 1, 2}},
      {Op::kReciprocal, 0.5, [](W x) { return 1 / x; }, {0, 1, -1}},
  };
}

template <typename T>
constexpr DType kType = std::is_same_v<T, float> ? DType::kFloat32 : DType::kFloat64;

// The function as generated code computes it.
template <typename T>
std::vector<T> Compute(Op op, const std::vector<std::vector<T>>& args) {
  const auto count = static_cast<int64_t>(args[0].size());
  KernelMaker make({count}, 0, 0);
  std::vector<std::string> buffers;
  std::vector<int32_t> in;
  for (const std::vector<T>& values : args) {
    in.push_back(make.In(kType<T>, count));
    buffers.push_back(Bytes(values));
  }
  const int32_t out = make.Out(kType<T>, count);
  buffers.emplace_back(static_cast<size_t>(count) * sizeof(T), 'x');
  make.Element();
  std::vector<Id> loads;
  for (int32_t buffer : in) loads.push_back(make.Load(buffer, Index({1})));
  make.Store(out, Index({1}), make.Op(op, kType<T>, loads));
  const auto loaded = LoadedKernel::Load(make.kernel);
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  if (!loaded.ok()) return {};
  EXPECT_EQ((*loaded)->Run(buffers), 0);
  return Values<T>(buffers.back());
}

// |got - want| in units of T's last place at `want`; infinity where they differ in kind or in the sign of a zero.
template <typename T>
double UlpsOff(T got, Wider<T> want) {
  using W = Wider<T>;
  constexpr double kFar = std::numeric_limits<double>::infinity();
  if (std::isnan(got) || std::isnan(want)) return std::isnan(got) && std::isnan(want) ? 0 : kFar;
  if (std::signbit(got) != std::signbit(want)) return kFar;
  if (std::isinf(want)) return std::isinf(got) ? 0 : kFar;
  // What is too large for T counts as the first number that is, so that rounding up to infinity is one unit off at
  // most.
  const W beyond = std::ldexp(W{1}, std::numeric_limits<T>::max_exponent);
  const W right = std::min(std::abs(want), beyond), mine = std::isinf(got) ? beyond : std::abs(W{got});
  const int exponent =
      std::max(std::ilogb(std::min(right, W{std::numeric_limits<T>::max()})), std::numeric_limits<T>::min_exponent - 1);
  const W unit = std::ldexp(
      W{1}, (right == 0 ? std::numeric_limits<T>::min_exponent - 1 : exponent) - (std::numeric_limits<T>::digits - 1));
  return static_cast<double>(std::abs(mine - right) / unit);
}

// All exponents and both signs in even steps of the bits, and the neighbours of `near`.
template <typename T>
std::vector<T> Sweep(const std::vector<double>& near) {
  constexpr int kNeighbours = 1500;
  constexpr bool kWide = std::is_same_v<T, double>;
  const Bits<T> step = kWide ? Bits<T>(0xfffffffffffffffful / 200003) : Bits<T>(4001);
  std::vector<T> values;
  Bits<T> bits = 0;
  do {
    values.push_back(std::bit_cast<T>(bits));
    bits += step;
  } while (bits >= step);
  for (double x : near) {
    T up = static_cast<T>(x), down = up;
    for (int i = 0; i < kNeighbours; ++i) {
      values.push_back(up);
      values.push_back(down);
      up = std::nextafter(up, std::numeric_limits<T>::infinity());
      down = std::nextafter(down, -std::numeric_limits<T>::infinity());
    }
  }
  // What comes up in training, and numbers close to multiples of pi / 2, where most bits of a sine cancel.
  for (int i = -60000; i <= 60000; ++i) {
    values.push_back(static_cast<T>(i * 7.3e-4));
    values.push_back(static_cast<T>(i * 1.5707963267948966));
  }
  return values;
}

template <typename T>
void ExpectWithinBound(const Function<T>& function) {
  const std::vector<T> values = Sweep<T>(function.near);
  const std::vector<T> got = Compute<T>(function.op, {values});
  ASSERT_EQ(got.size(), values.size());
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double off = UlpsOff<T>(got[i], function.reference(values[i]));
    if (off > worst) worst = off, at = i;
  }
  EXPECT_LE(worst, function.bound) << ir::Name(function.op) << "(" << StrCat(values[at]) << ") is " << got[at]
                                   << ", not " << static_cast<double>(function.reference(values[at]));
}

TEST(VectorMathTest, Float32IsWithinItsBounds) {
  for (const Function<float>& function : Functions<float>()) ExpectWithinBound(function);
}

TEST(VectorMathTest, Float64IsWithinItsBounds) {
  for (const Function<double>& function : Functions<double>()) ExpectWithinBound(function);
}

template <typename T>
std::vector<T> Specials() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values;
  for (T x : {T{0}, Limits::denorm_min(), Limits::min() / 4, Limits::min(), T{0.5}, T{1}, T{1.5}, T{2}, T{3}, T{1e7},
              T{8388609}, Limits::max(), Limits::infinity(), Limits::quiet_NaN()}) {
    values.push_back(x);
    values.push_back(-x);
  }
  return values;
}

template <typename T>
void ExpectPowWithin(double bound) {
  std::vector<T> x, y;
  const std::vector<T> specials = Specials<T>();
  for (T a : specials) {
    for (T b : specials) x.push_back(a), y.push_back(b);
  }
  // Bases of all exponents, with exponents up to those that reach the ends of the range.
  Bits<T> state = 12345;
  const auto next = [&] { return state = state * Bits<T>(1664525) * 4 + state + Bits<T>(1013904223); };
  const double reach = std::numeric_limits<T>::max_exponent + std::numeric_limits<T>::digits;
  for (int i = 0; i < 150000; ++i) {
    const T base = std::abs(std::bit_cast<T>(next() ^ (next() >> 7)));
    const double share =
        static_cast<double>(next() >> 8) / static_cast<double>(std::numeric_limits<Bits<T>>::max() >> 8);
    const double power = std::log2(std::max(std::abs(static_cast<double>(base)), 1e-300));
    x.push_back(i % 3 == 0 ? static_cast<T>(0.5 + share) : base);
    y.push_back(static_cast<T>((2 * share - 1) * reach / (i % 3 == 0 ? 1 : std::max(std::abs(power), 1e-3))));
  }
  const std::vector<T> got = Compute<T>(Op::kPow, {x, y});
  ASSERT_EQ(got.size(), x.size());
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double off = UlpsOff<T>(got[i], std::pow(Wider<T>{x[i]}, Wider<T>{y[i]}));
    if (off > worst) worst = off, at = i;
  }
  EXPECT_LE(worst, bound) << "pow(" << x[at] << ", " << y[at] << ") is " << got[at] << ", not "
                          << static_cast<double>(std::pow(Wider<T>{x[at]}, Wider<T>{y[at]}));
}

TEST(VectorMathTest, PowIsWithinItsBounds) {
  ExpectPowWithin<float>(0.51);
  ExpectPowWithin<double>(20);
}

// NaN, infinities, zeros, and numbers below the normal range give what IEEE 754 and C say, to the sign of a zero.
template <typename T>
void ExpectSpecials() {
  for (const Function<T>& function : Functions<T>()) {
    const std::vector<T> values = Specials<T>();
    const std::vector<T> got = Compute<T>(function.op, {values});
    ASSERT_EQ(got.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_LE(UlpsOff<T>(got[i], function.reference(values[i])), function.bound)
          << ir::Name(function.op) << "(" << values[i] << ") is " << got[i];
    }
  }
}

TEST(VectorMathTest, SpecialValues) {
  ExpectSpecials<float>();
  ExpectSpecials<double>();
}

}  // namespace
}  // namespace stepone::codegen
