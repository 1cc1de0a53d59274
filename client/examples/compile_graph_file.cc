#include "client/examples/compile_graph_file.h"

#include <cstdio>
#include <fstream>
#include <utility>

#include "absl/strings/escaping.h"
#include "client/compile_client.h"
#include "proto/str_cat.h"

namespace stepone::client {

absl::StatusOr<std::shared_ptr<const Program>> CompileGraphFile(const std::string& path, const ClientConfig& config) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(StrCat(path, " can't be read"));
  v1::CompileRequest request;
  if (!request.mutable_graph()->ParseFromIstream(&file)) {
    return absl::InvalidArgumentError(StrCat(path, " is no stepone.v1.Graph"));
  }
  request.mutable_code_options()->set_mode(v1::MODE_DEFAULT);
  request.mutable_code_options()->set_backend("stepone");
  request.mutable_run_options()->set_blocking_step(true);
  CompileClient client(config);
  const std::shared_ptr<CompileCall> call = client.Submit(std::move(request));
  call->Wait(absl::InfiniteDuration());  // bounded by config.request_timeout_ms
  if (!call->status().ok()) return call->status();
  const std::shared_ptr<const CompiledGraph> graph = call->result();
  std::printf("%s: %s in %.0f ms, key %s\n", path.c_str(), v1::Source_Name(graph->source).c_str(), graph->total_ms,
              absl::BytesToHexString(graph->graph_key).c_str());
  return graph->program;
}

}  // namespace stepone::client
