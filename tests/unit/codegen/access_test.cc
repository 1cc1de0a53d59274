// Loads and stores: strides, views, guards, indices read from tensors, ordered additions.
#include "compiler/ir/graph.h"
#include "gtest/gtest.h"
#include "proto/str_cat.h"
#include "tests/unit/codegen/kernel_maker.h"
#include "tests/unit/codegen/kernel_runner.h"

namespace stepone::codegen {
namespace {

using ir::DType;
using ir::Op;
using loops::Code;
using loops::Term;

std::string Blank(DType type, int64_t count) { return std::string(ir::ByteSize(type) * count, 'x'); }

loops::Kernel Copy(std::vector<int64_t> dims, int32_t vector_dim, loops::IndexExpr from, int64_t extent,
                   loops::IndexExpr to, DType type = kF32) {
  int64_t count = 1;
  for (int64_t size : dims) count *= size;
  KernelMaker make(std::move(dims), 0, vector_dim);
  const int32_t in = make.In(type, extent), out = make.Out(type, count);
  make.Element();
  make.Store(out, std::move(to), make.Load(in, std::move(from)));
  return make.kernel;
}

void CheckCopy(const loops::Kernel& kernel) {
  const DType type = kernel.buffers[0].dtype;
  ExpectLikeInterpreter(kernel,
                        {RandomElements(type, kernel.buffers[0].extent, 6), Blank(type, kernel.buffers[1].extent)});
}

TEST(AccessTest, StridesReversalAndTransposition) {
  for (DType type : {DType::kFloat32, DType::kInt64, DType::kBFloat16, DType::kBool}) {
    CheckCopy(Copy({21}, 0, Index({3}, 1), 62, Index({1}), type));
    CheckCopy(Copy({21}, 0, Index({-1}, 20), 21, Index({1}), type));
    CheckCopy(Copy({21}, 0, Index({0}, 4), 5, Index({1}), type));
    CheckCopy(Copy({19, 23}, 1, Index({1, 19}), 437, Index({23, 1}), type));
    CheckCopy(Copy({19, 23}, 0, Index({1, 19}), 437, Index({23, 1}), type));
    CheckCopy(Copy({2, 3, 4, 5}, 3, Index({60, 5, 15, 1}), 120, Index({60, 20, 5, 1}), type));
  }
}

TEST(AccessTest, DivisionsAndRemaindersOfTheLaneDim) {
  for (int64_t divisor : {2, 3, 8, 16, 24}) {
    loops::IndexExpr from;
    from.terms = {Term{.coefficient = 5, .dim = 0, .divisor = divisor},
                  Term{.coefficient = 1, .dim = 0, .divisor = 1, .modulus = divisor}};
    CheckCopy(Copy({77}, 0, from, 77 / divisor * 5 + divisor + 5, Index({1})));
  }
}

TEST(AccessTest, GuardedLoadsReadNothingElse) {
  // Pads 21 elements by 3 on both sides, and a second kernel keeps whole rows out.
  KernelMaker make({27}, 0, 0);
  const int32_t in = make.In(kF32, 21), out = make.Out(kF32, 27);
  make.Element();
  loops::Inst inside;
  inside.code = Code::kInBounds;
  inside.type = DType::kBool;
  inside.index = Index({1}, -3);
  inside.high = 21;
  const Id guard = make.Add(inside);
  const Id x = make.Load(in, Index({1}, -3), guard);
  make.Store(out, Index({1}), make.Op(Op::kWhere, {guard, x, make.Number(-5)}));
  ExpectLikeInterpreter(make.kernel, {RandomElements(kF32, 21, 1), Blank(kF32, 27)});

  KernelMaker rows({6, 11}, 0, 1);
  const int32_t a = rows.In(kF32, 33), b = rows.In(kF32, 33), c = rows.Out(kF32, 66);
  rows.Element();
  inside.index = Index({1});
  inside.high = 3;
  const Id first = rows.Add(inside);
  const Id second = rows.Op(Op::kNot, {first});
  const Id left = rows.Load(a, Index({11, 1}), first), right = rows.Load(b, Index({11, 1}, -33), second);
  rows.Store(c, Index({11, 1}), rows.Op(Op::kWhere, {first, left, right}));
  ExpectLikeInterpreter(rows.kernel, {RandomElements(kF32, 33, 1), RandomElements(kF32, 33, 2), Blank(kF32, 66)});
}

TEST(AccessTest, GuardedStridedLoadsAndStores) {
  KernelMaker make({27}, 0, 0);
  const int32_t in = make.In(kF32, 41), out = make.Buffer(kF32, 21, false, true);
  make.Element();
  loops::Inst inside;
  inside.code = Code::kInBounds;
  inside.type = DType::kBool;
  inside.index = Index({1}, -3);
  inside.high = 21;
  const Id guard = make.Add(inside);
  make.Store(out, Index({1}, -3), make.Load(in, Index({2}, -6), guard), guard);
  ExpectLikeInterpreter(make.kernel, {RandomElements(kF32, 41, 1), Blank(kF32, 21)});
}

// out[r, c] = table[index[r], c], and with indices per element.
loops::Kernel Embedding(int64_t rows, int64_t columns, int64_t vocabulary, DType type, bool wrap) {
  KernelMaker make({rows, columns}, 1, 1);
  const int32_t index = make.In(type, rows), table = make.In(kF32, vocabulary * columns),
                out = make.Out(kF32, rows * columns);
  make.Row();
  const Id row = make.Load(index, Index({1}));
  make.Element();
  make.Store(out, Index({columns, 1}), make.Take(table, Index({0, 1}), row, columns, vocabulary, wrap));
  return make.kernel;
}

TEST(AccessTest, TakesRowsAndChecksIndices) {
  const std::string table = RandomElements(kF32, 7 * 13, 1);
  ExpectLikeInterpreter(Embedding(3, 13, 7, DType::kInt64, false), {Bytes<int64_t>({6, 0, 3}), table, Blank(kF32, 39)});
  ExpectLikeInterpreter(Embedding(3, 13, 7, DType::kInt32, true),
                        {Bytes<int32_t>({-7, -1, 6}), table, Blank(kF32, 39)});
  for (int64_t bad : {int64_t{-8}, int64_t{7}, int64_t{1} << 40, INT64_MIN}) {
    for (bool wrap : {false, true}) {
      ExpectLikeInterpreter(Embedding(3, 13, 7, DType::kInt64, wrap),
                            {Bytes<int64_t>({0, bad, 0}), table, Blank(kF32, 39)});
    }
  }
  ExpectLikeInterpreter(Embedding(3, 13, 7, DType::kInt64, false),
                        {Bytes<int64_t>({0, -1, 0}), table, Blank(kF32, 39)});
}

TEST(AccessTest, GathersElementsAndChecksIndices) {
  for (int64_t bad : {0, 9, -1}) {
    KernelMaker make({21}, 0, 0);
    const int32_t index = make.In(DType::kInt64, 21), table = make.In(DType::kFloat64, 9 * 21),
                  out = make.Out(DType::kFloat64, 21);
    make.Element();
    make.Store(out, Index({1}), make.Take(table, Index({1}), make.Load(index, Index({1})), 21, 9));
    std::vector<int64_t> indices(21, 5);
    indices[2] = 8, indices[20] = bad;
    ExpectLikeInterpreter(make.kernel,
                          {Bytes(indices), RandomElements(DType::kFloat64, 189, 2), Blank(DType::kFloat64, 21)});
  }
}

TEST(AccessTest, OrderedAdditionsIntoRowsAndElements) {
  // Embedding's backward: rows that share an index are added in order; row -1 is left out.
  for (int64_t columns : {5, 64, 200}) {
    KernelMaker make({6, columns}, 1, 1);
    make.kernel.ordered_rows = true;
    const int32_t index = make.In(DType::kInt64, 6), grad = make.In(kF32, 6 * columns),
                  out = make.Buffer(kF32, 4 * columns, true, true);
    make.Row();
    const Id row = make.Load(index, Index({1}));
    const Id guard = make.Op(Op::kNe, DType::kBool, {row, make.Integer(-1, DType::kInt64)});
    make.Element();
    loops::Inst add;
    add.code = Code::kStoreAdd;
    add.buffer = out;
    add.index = Index({0, 1});
    add.args = {make.Load(grad, Index({columns, 1})), row, guard};
    add.indirect = {{.arg = 1, .stride = columns, .bound = 4}};
    add.guard = 2;
    make.Add(add);
    ExpectLikeInterpreter(make.kernel, {Bytes<int64_t>({3, 0, 3, -1, 0, 3}), RandomElements(kF32, 6 * columns, 2),
                                        RandomElements(kF32, 4 * columns, 3)});
  }
  // Lanes of one vector meet in one element.
  KernelMaker make({21}, 1, 0);
  make.kernel.ordered_rows = true;
  const int32_t index = make.In(DType::kInt64, 21), source = make.In(kF32, 21), out = make.Buffer(kF32, 3, true, true);
  make.Row();
  loops::Inst add;
  add.code = Code::kStoreAdd;
  add.buffer = out;
  add.args = {make.Load(source, Index({1})), make.Load(index, Index({1}))};
  add.indirect = {{.arg = 1, .stride = 1, .bound = 3}};
  make.Add(add);
  std::vector<int64_t> indices(21);
  for (int i = 0; i < 21; ++i) indices[i] = i * i % 3;
  ExpectLikeInterpreter(make.kernel, {Bytes(indices), RandomElements(kF32, 21, 2), RandomElements(kF32, 3, 3)});
}

}  // namespace
}  // namespace stepone::codegen
