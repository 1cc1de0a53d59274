// Sends a graph file to the service. Knows protobuf, so that run_graph.cc can know LibTorch.
#ifndef STEPONE_CLIENT_EXAMPLES_COMPILE_GRAPH_FILE_H_
#define STEPONE_CLIENT_EXAMPLES_COMPILE_GRAPH_FILE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/client_config.h"
#include "client/plan.h"

namespace stepone::client {

// Compiles the serialised stepone.v1.Graph in `path` (STEPONE_DUMP_DIR makes the Python package write them) and waits
// for it. kNotFound or kInvalidArgument for a file that can't be read or parsed; otherwise see CompileClient::Submit().
absl::StatusOr<std::shared_ptr<const Program>> CompileGraphFile(const std::string& path, const ClientConfig& config);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_EXAMPLES_COMPILE_GRAPH_FILE_H_
