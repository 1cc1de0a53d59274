// Property: whatever fusion makes of a graph computes what the graph says.
#include <cstdint>
#include <vector>

#include "compiler/ir/builder.h"
#include "gtest/gtest.h"
#include "tests/unit/loops/fuse_test_support.h"

namespace stepone::loops {
namespace {

using ir::DType;
using ir::Expr;
using ir::Op;

// Grows a graph by one random node at a time, from values of any shape.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : t(seed) {
    for (int i = 0; i < 3; ++i) values_.push_back(t.Input(DType::kFloat32, RandomSizes()));
    values_.push_back(t.InputWithStrides(DType::kFloat32, {4, 6}, {1, 4}));
    index_ = t.Input(DType::kInt64, {6}, 0, 4);
    for (int64_t nodes = t.Pick(3, 14); nodes > 0; --nodes) values_.push_back(RandomNode());
    for (int64_t outputs = t.Pick(1, 3); outputs > 0; --outputs) t.Output(Any());
    t.Output(values_.back());
  }

  TestGraph t;

 private:
  ir::Dims RandomSizes() {
    ir::Dims sizes;
    constexpr int64_t kSizes[] = {1, 2, 3, 4, 6, 8, 12};
    for (int64_t rank = t.Pick(0, 4); rank > 0; --rank) sizes.push_back(kSizes[t.Pick(0, 6)]);
    return sizes;
  }

  Expr Any() { return values_[t.Pick(0, static_cast<int64_t>(values_.size()) - 1)]; }

  // Another value of the sizes of `x`, or `x` itself.
  Expr Partner(Expr x) {
    std::vector<Expr> fitting = {x};
    for (Expr value : values_) {
      if (value.sizes() == x.sizes()) fitting.push_back(value);
    }
    return fitting[t.Pick(0, static_cast<int64_t>(fitting.size()) - 1)];
  }

  ir::Dims RandomDims(Expr x) {
    ir::Dims dims;
    for (int64_t d = 0; d < x.rank(); ++d) {
      if (t.Pick(0, 1) == 1) dims.push_back(d);
    }
    return dims;
  }

  Expr RandomPointwise(Expr x) {
    switch (t.Pick(0, 6)) {
      case 0:
        return ir::Unary(Op::kTanh, x);
      case 1:
        return ir::Binary(Op::kMaximum, x, Partner(x));
      case 2:
        return x * Partner(x);
      case 3:
        return x + Partner(x);
      case 4:
        return ir::Where(ir::Binary(Op::kLt, x, Partner(x)), x, Partner(x));
      case 5:
        return t.builder.Random(x.sizes()) + x;
      default:
        return ir::Unary(Op::kExp, ir::Unary(Op::kTanh, x));
    }
  }

  Expr RandomReduction(Expr x) {
    const ir::Dims dims = RandomDims(x);
    constexpr Op kOps[] = {Op::kSum, Op::kSum, Op::kMax, Op::kMin};
    const bool keep = t.Pick(0, 1) == 1;
    const Expr reduced = ir::Reduce(kOps[t.Pick(0, 3)], x, dims, keep);
    return keep && t.Pick(0, 1) == 1 ? x - ir::BroadcastTo(reduced, x.sizes()) : reduced;
  }

  Expr RandomView(Expr x) {
    switch (t.Pick(0, 4)) {
      case 0: {
        ir::Dims dims;
        for (int64_t d = 0; d < x.rank(); ++d) dims.insert(dims.begin() + t.Pick(0, d), d);
        return ir::Permute(x, dims);
      }
      case 1: {
        if (x.rank() == 0) return ir::Reshape(x, {1, 1});
        const int64_t d = t.Pick(0, x.rank() - 1);
        const int64_t start = t.Pick(0, x.size(d) - 1);
        const int64_t step = t.Pick(1, 2);
        return ir::Slice(x, d, start, (x.size(d) - start + step - 1) / step, step);
      }
      case 2:
        return ir::Flip(x, RandomDims(x));
      case 3: {
        // Other sizes for the same elements: prime factors dealt out anew.
        int64_t rest = x.type().NumElements();
        ir::Dims sizes = {1, 1, 1};
        for (int64_t prime = 2; rest > 1;) {
          if (rest % prime != 0) {
            ++prime;
            continue;
          }
          sizes[t.Pick(0, 2)] *= prime;
          rest /= prime;
        }
        return ir::Reshape(x, sizes);
      }
      default: {
        if (x.type().NumElements() > 200) return x;
        ir::Dims sizes = x.sizes();
        sizes.insert(sizes.begin(), t.Pick(1, 3));
        return ir::BroadcastTo(x, sizes);
      }
    }
  }

  Expr RandomMove(Expr x) {
    switch (t.Pick(0, 3)) {
      case 0: {
        ir::Dims low(static_cast<size_t>(x.rank())), high = low;
        for (int64_t d = 0; d < x.rank(); ++d) low[d] = t.Pick(0, 1), high[d] = t.Pick(0, 1);
        return ir::Pad(x, low, high, t.Pick(0, 1) == 0 ? 0.0 : 1.5);
      }
      case 1:
        return x.rank() == 0 ? x : ir::Concat({x, Partner(x)}, t.Pick(0, x.rank() - 1));
      case 2: {
        ir::Dims sizes = x.sizes(), strides(sizes.size());
        int64_t stride = 1;
        for (size_t d = 0; d < sizes.size(); ++d) strides[d] = stride, stride *= sizes[d];
        return ir::Copy(x, strides);
      }
      default: {
        for (int64_t d = 0; d < x.rank(); ++d) {
          if (x.size(d) < 4) continue;
          if (t.Pick(0, 1) == 1) return ir::Take(x, index_, d, false);
          if (x.size(d) == 6) return ir::TakeGrad(x, index_, d, 5, t.Pick(0, 1) == 1 ? 2 : -1);
        }
        return x;
      }
    }
  }

  Expr RandomNode() {
    const Expr x = Any();
    if (x.type().NumElements() > 4000) return ir::Reduce(Op::kSum, x, {0}, false);
    switch (t.Pick(0, 9)) {
      case 0:
      case 1:
        return RandomReduction(x);
      case 2:
      case 3:
      case 4:
        return RandomView(x);
      case 5:
        return RandomMove(x);
      default:
        return RandomPointwise(x);
    }
  }

  std::vector<Expr> values_;
  Expr index_;
};

class FuseRandomTest : public testing::TestWithParam<int> {};

TEST_P(FuseRandomTest, ProgramsComputeTheirGraphs) {
  int in_place = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t seed = static_cast<uint64_t>(GetParam()) * 1000 + static_cast<uint64_t>(i);
    SCOPED_TRACE(seed);
    RandomGraph random(seed);
    FuseAndCheck(random.t);
    if (HasFailure()) return;
    in_place += WrittenInPlace(random.t, Fuse(random.t.graph, {.disable_fusion = true}));
  }
  EXPECT_GT(in_place, 0) << "or the comparison of memory plans compares nothing";
}

INSTANTIATE_TEST_SUITE_P(Seeds, FuseRandomTest, testing::Range(0, 8));

}  // namespace
}  // namespace stepone::loops
