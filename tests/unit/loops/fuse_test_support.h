// Shared by the tests of fusion: random inputs, and the property that a program computes what its graph says.
#ifndef STEPONE_TESTS_UNIT_LOOPS_FUSE_TEST_SUPPORT_H_
#define STEPONE_TESTS_UNIT_LOOPS_FUSE_TEST_SUPPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/builder.h"
#include "compiler/ir/graph.h"
#include "compiler/loops/program.h"
#include "tests/testlib/evaluator.h"

namespace stepone::loops {

// A graph under construction with its inputs' values.
class TestGraph {
 public:
  explicit TestGraph(uint64_t seed = 1) : random_(seed), builder(graph) {}

  // Floats are uniform in [-2, 2), bool either, integers in [low, high).
  ir::Expr Input(ir::DType dtype, ir::Dims sizes, int64_t low = 0, int64_t high = 4);
  ir::Expr InputWithStrides(ir::DType dtype, ir::Dims sizes, ir::Dims strides);
  void Output(ir::Expr value);

  int64_t Pick(int64_t low, int64_t high);  // uniform, both included

 private:
  uint64_t Next();
  uint64_t random_;

 public:
  ir::Graph graph;
  ir::Builder builder;
  std::vector<testlib::Tensor> inputs;
};

// Number of launches and of those whose kernel's name is `name`.
int Launches(const Program& program);
std::string Describe(const Program& program);

// Every kernel passes Verify, and the program gives what Evaluate gives (or the same error), whether temporaries have
// memory of their own or share the planned arena.
void ExpectSameAsGraph(const TestGraph& test, const Program& program);

// Number of temporaries that the memory plan puts in the place of another one.
int WrittenInPlace(const TestGraph& test, const Program& program);

// Fuses with and without fusion, checks both, and returns the fused one.
Program FuseAndCheck(const TestGraph& test);

}  // namespace stepone::loops

#endif  // STEPONE_TESTS_UNIT_LOOPS_FUSE_TEST_SUPPORT_H_
