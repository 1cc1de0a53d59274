// Buffers of a program under construction: one per value that is in memory.
#ifndef STEPONE_COMPILER_LOOPS_BUFFER_TABLE_H_
#define STEPONE_COMPILER_LOOPS_BUFFER_TABLE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/loops/program.h"

namespace stepone::loops {

// Partial sums of an accumulated reduction: [shards, columns...].
struct Partial {
  // Part of a result dim's position: (position / divisor) % size stands `stride` elements apart in a shard's slice.
  struct Part {
    int64_t divisor = 1;
    int64_t size = 1;
    int64_t stride = 1;
  };
  BufferId buffer = -1;
  int64_t shards = 1;
  int64_t shard_elements = 1;
  std::vector<std::vector<Part>> parts;  // per dim of the result, outer parts first
};

// Not thread-safe. Graph and program must outlive it.
class BufferTable {
 public:
  BufferTable(const ir::Graph& graph, Program& program);

  // The buffer of a base value, or of a view of one: made when it is first asked for.
  BufferId Of(ir::ValueId value);
  BufferId AddTemporary(ir::TensorType type, std::string name);
  void SetSizes(BufferId id, ir::Dims sizes);  // of a temporary; contiguous
  const Buffer& buffer(BufferId id) const { return program_.buffers[id]; }

  std::map<ir::ValueId, Partial> partials;  // by the reduction's result

 private:
  BufferId Add(Buffer buffer);

  const ir::Graph& graph_;
  Program& program_;
  std::vector<BufferId> of_;
};

}  // namespace stepone::loops

#endif  // STEPONE_COMPILER_LOOPS_BUFFER_TABLE_H_
