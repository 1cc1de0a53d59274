#include "compiler/loops/index_expr.h"

#include <random>

#include "compiler/loops/space.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stepone::loops {
namespace {

using ir::Dims;

// Calls visit(point) for every point of the dims.
template <typename F>
void ForEachPoint(const Dims& sizes, F visit) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  Dims point(sizes.size());
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t d = sizes.size(); d-- > 0;) {
      point[d] = rest % sizes[d];
      rest /= sizes[d];
    }
    visit(point);
  }
}

TEST(IndexExprTest, DividesRowMajorPositionsWithoutDivision) {
  const Dims sizes = {8, 128};
  Split split;
  const std::optional<DivMod> parts = Divide(Add(DimIndex(0, 128), DimIndex(1)), 128, sizes, &split);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(ToString(parts->quotient), "d0");
  EXPECT_EQ(ToString(parts->remainder), "d1");
}

TEST(IndexExprTest, AsksForTheSplitThatMakesADivisionAffine) {
  const Dims sizes = {1024};
  Split split;
  EXPECT_FALSE(Divide(DimIndex(0), 128, sizes, &split).has_value());
  EXPECT_EQ(split.dim, 0);
  EXPECT_EQ(split.inner, 128);
  Dims finer = sizes;
  ApplySplit(split, &finer);
  EXPECT_THAT(finer, testing::ElementsAre(8, 128));
  const std::optional<DivMod> parts = Divide(ApplySplit(DimIndex(0), split), 128, finer, &split);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(ToString(parts->quotient), "d0");
}

TEST(IndexExprTest, KeepsDivisionsThatNoSplitRemoves) {
  const Dims sizes = {10};
  Split split;
  const std::optional<DivMod> parts = Divide(DimIndex(0), 4, sizes, &split);
  ASSERT_TRUE(parts.has_value());
  EXPECT_EQ(ToString(parts->quotient), "(d0/4)");
  EXPECT_EQ(ToString(parts->remainder), "(d0%4)");
}

TEST(IndexExprTest, RangesCoverAllValues) {
  const Dims sizes = {5, 7};
  const IndexExpr expr = AddConstant(Add(DimIndex(0, -3), DimIndex(1, 2)), 4);
  const Range range = RangeOf(expr, sizes);
  EXPECT_EQ(range.low, -8);
  EXPECT_EQ(range.high, 16);
}

TEST(IndexExprTest, RandomDivisionsAreExact) {
  std::mt19937 random(1);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  int written = 0;
  for (int round = 0; round < 2000; ++round) {
    Dims sizes;
    for (int64_t d = pick(1, 3); d > 0; --d) sizes.push_back(pick(2, 12));
    IndexExpr expr = Constant(pick(0, 3));
    for (size_t d = 0; d < sizes.size(); ++d) expr = Add(expr, DimIndex(static_cast<int32_t>(d), pick(0, 12)));
    const int64_t divisor = pick(1, 24);
    Split split;
    std::optional<DivMod> parts = Divide(expr, divisor, sizes, &split);
    for (int i = 0; i < 8 && !parts && split.dim >= 0; ++i) {
      expr = ApplySplit(expr, split);
      ApplySplit(split, &sizes);
      parts = Divide(expr, divisor, sizes, &split);
    }
    if (!parts) continue;
    ++written;
    ForEachPoint(sizes, [&](const Dims& point) {
      const int64_t value = Evaluate(expr, point);
      ASSERT_EQ(Evaluate(parts->quotient, point), value / divisor);
      ASSERT_EQ(Evaluate(parts->remainder, point), value % divisor);
    });
  }
  EXPECT_GT(written, 300);
}

TEST(IndexExprTest, SplitsKeepValues) {
  std::mt19937 random(2);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 500; ++round) {
    const int64_t inner = pick(2, 6), outer = pick(2, 6);
    const Dims sizes = {3, inner * outer, 4};
    const IndexExpr expr = Add(Add(DimIndex(0, pick(-5, 5)), DimIndex(1, pick(-5, 5))), DimIndex(2, pick(-5, 5)));
    const Split split{1, inner};
    const IndexExpr finer = ApplySplit(expr, split);
    ForEachPoint({3, outer, inner, 4}, [&](const Dims& p) {
      ASSERT_EQ(Evaluate(finer, p), Evaluate(expr, {p[0], p[1] * inner + p[2], p[3]}));
    });
  }
}

TEST(IndexExprTest, ReshapeThereAndBackIsTheIdentity) {
  const Dims sizes = {6, 8, 10};
  std::vector<IndexExpr> coords = {DimIndex(0), DimIndex(1), DimIndex(2)};
  Split split;
  const IndexExpr position = Linearize(coords, sizes);
  const auto two = Delinearize(position, {48, 10}, sizes, &split);
  ASSERT_TRUE(two.has_value());
  const auto back = Delinearize(Linearize(*two, {48, 10}), sizes, sizes, &split);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*back, coords);
}

TEST(UnifierTest, CutsBothSidesToTheirCommonFactors) {
  // [6, 20] and [120] hold the same elements.
  Unifier unify({6, 20}, {120});
  ASSERT_TRUE(unify.Require({Add(DimIndex(0, 20), DimIndex(1))}, {DimIndex(0)}));
  ASSERT_TRUE(unify.Finish());
  EXPECT_THAT(unify.atoms(), testing::ElementsAre(6, 20));
  EXPECT_EQ(ToString(unify.from_b()[0]), "20*d0+d1");
}

TEST(UnifierTest, RefusesShapesThatDoNotNest) {
  Unifier unify({6, 4}, {8, 3});
  EXPECT_FALSE(unify.Require({Add(DimIndex(0, 4), DimIndex(1))}, {Add(DimIndex(0, 3), DimIndex(1))}));
}

TEST(UnifierTest, MatchesColumnsBySizeOnceRowsAreKnown) {
  Unifier unify({32, 100}, {100, 32});
  ASSERT_TRUE(unify.Require({DimIndex(0)}, {DimIndex(1)}));
  ASSERT_TRUE(unify.Finish());
  EXPECT_EQ(ToString(unify.from_b()[0]), "d1");
  EXPECT_EQ(ToString(unify.from_b()[1]), "d0");
}

}  // namespace
}  // namespace stepone::loops
