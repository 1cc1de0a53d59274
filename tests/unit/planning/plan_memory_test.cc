#include "compiler/planning/plan_memory.h"

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/codegen/kernel_maker.h"

namespace stepone::planning {
namespace {

using loops::Buffer;
using loops::BufferId;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Programs by hand: buffers by kind, launches that name the buffers they touch, extern calls by op.
class ProgramBuilder {
 public:
  BufferId Add(Buffer::Kind kind, int64_t elements, BufferId base = -1) {
    Buffer buffer;
    buffer.kind = kind;
    buffer.type = ir::Contiguous(ir::DType::kFloat32, {elements});
    buffer.base = base;
    program.buffers.push_back(buffer);
    return static_cast<BufferId>(program.buffers.size()) - 1;
  }
  BufferId Temporary(int64_t elements) { return Add(Buffer::Kind::kTemporary, elements); }

  void Launch(std::vector<BufferId> buffers) {
    loops::Launch launch;
    launch.buffers = std::move(buffers);
    launch.kernel.buffers.resize(launch.buffers.size());
    program.steps.push_back(std::move(launch));
  }
  // Each of `outs` is the tanh of `in`, element by element.
  void Tanh(BufferId in, const std::vector<BufferId>& outs) {
    const int64_t elements = program.buffers[in].type.sizes[0];
    codegen::KernelMaker make({elements}, 0, 0);
    loops::Launch launch;
    launch.buffers = {in};
    make.In(ir::DType::kFloat32, elements);
    make.Element();
    const codegen::Id y = make.Op(ir::Op::kTanh, {make.Load(0, codegen::Index({1}))});
    for (BufferId out : outs) {
      launch.buffers.push_back(out);
      make.Store(make.Out(ir::DType::kFloat32, elements), codegen::Index({1}), y);
    }
    launch.kernel = make.kernel;
    program.steps.push_back(std::move(launch));
  }
  void Call(const std::string& op, std::vector<BufferId> operands, std::vector<BufferId> results,
            std::vector<int32_t> aliases = {}) {
    auto call = std::make_shared<ir::Call>();
    call->op = op;
    call->result_aliases = std::move(aliases);
    std::vector<ir::ValueId> values;
    for (BufferId b : operands) values.push_back(graph.AddValue(program.buffers[b].type));
    std::vector<ir::TensorType> types;
    for (BufferId b : results) types.push_back(program.buffers[b].type);
    const ir::NodeId node = graph.AddNode(ir::Op::kAten, std::move(values), std::move(types));
    graph.node(node).call = std::move(call);
    program.steps.push_back(loops::ExternCall{node, std::move(operands), std::move(results)});
  }
  void Output(BufferId buffer) { program.outputs.push_back({buffer, std::nullopt}); }
  MemoryPlan Plan(bool in_place = true) { return PlanMemory(graph, program, {.in_place = in_place}); }

  ir::Graph graph;
  loops::Program program;
};

TEST(PlanMemoryTest, ChainReusesMemory) {
  ProgramBuilder b;
  const BufferId in = b.Add(Buffer::Kind::kInput, 100);
  const BufferId x = b.Temporary(100), y = b.Temporary(100), z = b.Temporary(100), out = b.Temporary(100);
  b.Launch({in, x});
  b.Launch({x, y});
  b.Launch({y, z});
  b.Launch({z, out});
  b.Output(out);
  const MemoryPlan plan = b.Plan();
  EXPECT_EQ(plan.arena_bytes, 2 * 448) << "400 bytes rounded up to 448, two alive at a time";
  EXPECT_EQ(plan.placements[x].offset_bytes, plan.placements[z].offset_bytes);
  EXPECT_NE(plan.placements[x].offset_bytes, plan.placements[y].offset_bytes);
  EXPECT_EQ(plan.placements[in].home, Home::kInput);
  EXPECT_EQ(plan.placements[out].home, Home::kOutput);
}

TEST(PlanMemoryTest, ViewKeepsItsBaseAlive) {
  ProgramBuilder b;
  const BufferId x = b.Temporary(64), y = b.Temporary(64), z = b.Temporary(64);
  const BufferId view = b.Add(Buffer::Kind::kView, 32, x);
  b.Launch({x});
  b.Launch({y});
  b.Launch({view, y, z});
  const MemoryPlan plan = b.Plan();
  EXPECT_EQ(plan.placements[view].home, Home::kView);
  EXPECT_EQ(plan.arena_bytes, 3 * 256);
}

TEST(PlanMemoryTest, OutputThroughViewOwnsItsMemory) {
  ProgramBuilder b;
  const BufferId x = b.Temporary(64);
  const BufferId view = b.Add(Buffer::Kind::kView, 32, x);
  b.Launch({x});
  b.Output(view);
  const MemoryPlan plan = b.Plan();
  EXPECT_EQ(plan.placements[x].home, Home::kOutput);
  EXPECT_EQ(plan.arena_bytes, 0);
}

TEST(PlanMemoryTest, ExternAliasHoldsItsOperandAndEscapesWithIt) {
  ProgramBuilder b;
  const BufferId x = b.Temporary(64), kept = b.Temporary(64), other = b.Temporary(64);
  const BufferId alias = b.Add(Buffer::Kind::kExtern, 64);
  const BufferId escaping = b.Add(Buffer::Kind::kExtern, 64);
  b.Launch({x, kept});
  b.Call("aten.diagonal.default", {x}, {alias}, {0});
  b.Call("aten.diagonal.default", {kept}, {escaping}, {0});
  b.Launch({other});
  b.Launch({alias, other});
  b.Output(escaping);
  const MemoryPlan plan = b.Plan();
  EXPECT_EQ(plan.placements[kept].home, Home::kOutput) << "the caller may keep an alias of it";
  EXPECT_NE(plan.placements[x].offset_bytes, plan.placements[other].offset_bytes)
      << "x is still read through the alias when `other` is written";
  EXPECT_THAT(plan.free_after[4], ElementsAre(alias));
  for (size_t step = 0; step < 4; ++step) EXPECT_THAT(plan.free_after[step], IsEmpty());
}

TEST(PlanMemoryTest, MatrixProductWritesIntoTheArena) {
  ProgramBuilder b;
  const BufferId x = b.Add(Buffer::Kind::kInput, 64);
  const BufferId product = b.Add(Buffer::Kind::kExtern, 64), other = b.Add(Buffer::Kind::kExtern, 64);
  b.Call("aten.mm.default", {x, x}, {product});
  b.Call("aten.cumsum.default", {product}, {other});
  b.Launch({other});
  const MemoryPlan plan = b.Plan();
  EXPECT_EQ(plan.placements[product].home, Home::kArena);
  EXPECT_EQ(plan.out_overload[0], "aten.mm.out");
  EXPECT_EQ(plan.placements[other].home, Home::kExtern);
  EXPECT_EQ(plan.out_overload[1], "");
  EXPECT_THAT(plan.free_after[2], ElementsAre(other));
}

TEST(PlanMemoryTest, TransposedProductIsLeftToTheOp) {
  ProgramBuilder b;
  const BufferId x = b.Add(Buffer::Kind::kInput, 64);
  const BufferId product = b.Add(Buffer::Kind::kExtern, 64);
  b.program.buffers[product].type.sizes = {8, 8};
  b.program.buffers[product].type.strides = {1, 8};
  b.Call("aten.mm.default", {x, x}, {product});
  b.Launch({product});
  EXPECT_EQ(b.Plan().out_overload[0], "");
}

TEST(PlanMemoryTest, KernelsWriteInPlaceOfWhatDies) {
  ProgramBuilder b;
  const BufferId in = b.Add(Buffer::Kind::kInput, 64);
  const BufferId x = b.Temporary(64), y = b.Temporary(64), z = b.Temporary(64), out = b.Temporary(64);
  b.Tanh(in, {x});
  b.Tanh(x, {y});
  b.Tanh(y, {z});
  b.Tanh(z, {out});
  b.Output(out);
  const MemoryPlan plan = b.Plan();
  EXPECT_THAT(plan.in_place_of, ElementsAre(-1, -1, x, y, -1)) << "neither inputs nor outputs";
  EXPECT_EQ(plan.arena_bytes, 256);
  EXPECT_EQ(plan.placements[x].offset_bytes, plan.placements[z].offset_bytes);
  EXPECT_EQ(b.Plan(/*in_place=*/false).arena_bytes, 512);
}

TEST(PlanMemoryTest, NothingIsWrittenInPlaceOfWhatIsStillNeeded) {
  ProgramBuilder b;
  const BufferId x = b.Temporary(64), y = b.Temporary(64), seen = b.Temporary(64), z = b.Temporary(64);
  const BufferId view = b.Add(Buffer::Kind::kView, 32, x);
  const BufferId alias = b.Add(Buffer::Kind::kExtern, 64);
  b.Launch({x});
  b.Tanh(x, {y});
  b.Launch({view});
  b.Launch({seen});
  b.Call("aten.diagonal.default", {seen}, {alias}, {0});
  b.Tanh(seen, {z});
  b.Launch({y, z});
  EXPECT_THAT(b.Plan().in_place_of, ::testing::Each(-1)) << "x is read through its view, `seen` has another name";
}

TEST(PlanMemoryTest, OneResultTakesAnOperandsPlace) {
  ProgramBuilder b;
  const BufferId x = b.Temporary(64), y = b.Temporary(64), z = b.Temporary(64);
  b.Launch({x});
  b.Tanh(x, {y, z});
  b.Launch({y, z});
  const MemoryPlan plan = b.Plan();
  EXPECT_EQ((plan.in_place_of[y] == x) + (plan.in_place_of[z] == x), 1);
  EXPECT_EQ(plan.arena_bytes, 512);
  EXPECT_NE(plan.placements[y].offset_bytes, plan.placements[z].offset_bytes);
}

// Random lives: whatever the placement, buffers that are alive together never overlap, all is aligned, and the arena is
// no larger than the sum of everything and no smaller than the largest sum of bytes alive at one step.
TEST(PlanMemoryTest, RandomLivesNeverOverlap) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    ProgramBuilder b;
    const int steps = 40;
    struct Use {
      BufferId buffer;
      int first, last;
      int64_t bytes;
    };
    std::vector<Use> uses;
    for (int i = 0; i < 60; ++i) {
      const int64_t elements = 1 + static_cast<int64_t>(random() % 5000);
      const int first = static_cast<int>(random() % steps);
      const int last = std::min<int>(steps - 1, first + static_cast<int>(random() % 6));
      uses.push_back({b.Temporary(elements), first, last, (elements * 4 + 63) / 64 * 64});
    }
    int64_t peak = 0, total = 0;
    for (int step = 0; step < steps; ++step) {
      std::vector<BufferId> touched;
      int64_t alive = 0;
      for (const Use& use : uses) {
        if (use.first == step || use.last == step) touched.push_back(use.buffer);
        if (use.first <= step && step <= use.last) alive += use.bytes;
      }
      b.Launch(touched);
      peak = std::max(peak, alive);
    }
    for (const Use& use : uses) total += use.bytes;
    const MemoryPlan plan = b.Plan();
    EXPECT_GE(plan.arena_bytes, peak);
    EXPECT_LE(plan.arena_bytes, total);
    for (const Use& x : uses) {
      const int64_t x_start = plan.placements[x.buffer].offset_bytes;
      EXPECT_EQ(x_start % kAlignment, 0);
      EXPECT_LE(x_start + x.bytes, plan.arena_bytes);
      for (const Use& y : uses) {
        if (x.buffer >= y.buffer || x.last < y.first || y.last < x.first) continue;
        const int64_t y_start = plan.placements[y.buffer].offset_bytes;
        EXPECT_TRUE(x_start + x.bytes <= y_start || y_start + y.bytes <= x_start)
            << "buffers " << x.buffer << " and " << y.buffer;
      }
    }
  }
}

}  // namespace
}  // namespace stepone::planning
