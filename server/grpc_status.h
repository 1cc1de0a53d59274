// absl::Status as gRPC carries it.
#ifndef STEPONE_SERVER_GRPC_STATUS_H_
#define STEPONE_SERVER_GRPC_STATUS_H_

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"

namespace stepone::server {

inline constexpr char kErrorDetailKey[] = "stepone-error-bin";

// The status to finish a call with. An error's ErrorDetail is added to the call's trailing metadata under
// kErrorDetailKey. REQUIRES: the call has not finished.
grpc::Status ToGrpcStatus(const absl::Status& status, grpc::ServerContextBase& context);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_GRPC_STATUS_H_
