#include "server/grpc_status.h"

#include <algorithm>
#include <string>

#include "proto/status.h"

namespace stepone::server {
namespace {

// Metadata of a call must fit into 8 KiB altogether.
constexpr size_t kMaxDetailBytes = 4096;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status, grpc::ServerContextBase& context) {
  if (status.ok()) return grpc::Status::OK;
  v1::ErrorDetail detail = ToErrorDetail(status);
  std::string bytes = detail.SerializeAsString();
  if (bytes.size() > kMaxDetailBytes) {
    detail.clear_known_values();
    detail.mutable_node()->resize(std::min<size_t>(detail.node().size(), 256));
    bytes = detail.SerializeAsString();
  }
  context.AddTrailingMetadata(kErrorDetailKey, bytes);
  // The codes have the same numbers.
  return grpc::Status(static_cast<grpc::StatusCode>(detail.code()), detail.message());
}

}  // namespace stepone::server
