// Requests for the tests of keys.
#ifndef STEPONE_TESTS_UNIT_CACHE_SAMPLE_REQUEST_H_
#define STEPONE_TESTS_UNIT_CACHE_SAMPLE_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cache/cache_key.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone {

// The parts of a request that reach its key.
struct SampleRequest {
  v1::Graph graph;
  v1::Target target;
  v1::CodeOptions options;
  std::string fingerprint = "compiler 1";
  std::string tenant = "team-a";

  KeyMaterial Key() const { return GraphKey(graph, target, options, fingerprint, tenant); }
};

// A small request in which every field of every message is set somewhere.
SampleRequest RichRequest();

// A chain of `nodes` aten.add.Tensor calls over float32 matrices, as large as real graphs are.
SampleRequest LargeRequest(int nodes);

// The same graph with value i at index permutation[i].
v1::Graph Renumbered(const v1::Graph& graph, const std::vector<uint32_t>& permutation);

}  // namespace stepone

#endif  // STEPONE_TESTS_UNIT_CACHE_SAMPLE_REQUEST_H_
