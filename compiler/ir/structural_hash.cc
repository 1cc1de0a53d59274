#include "compiler/ir/structural_hash.h"

#include <functional>
#include <string>

#include "compiler/ir/text.h"

namespace stepone::ir {

uint64_t StructuralHash(const Graph& graph) {
  PrintOptions options;
  options.names = false;
  return std::hash<std::string>()(Print(graph, options));
}

}  // namespace stepone::ir
