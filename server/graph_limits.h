// The part of request_limits.h that looks at the graph.
#ifndef STEPONE_SERVER_GRAPH_LIMITS_H_
#define STEPONE_SERVER_GRAPH_LIMITS_H_

#include "absl/status/status.h"
#include "server/request_limits.h"
#include "stepone/v1/graph.pb.h"

namespace stepone::server {

// See CheckRequest().
absl::Status CheckGraph(const v1::Graph& graph, const RequestLimits& limits);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_GRAPH_LIMITS_H_
