// What this host is as a compile target, and which artifacts it may run.
//
// Client and compiler both use it: a client asks for exactly the target that a worker on the same host offers.
#ifndef STEPONE_PROTO_HOST_TARGET_H_
#define STEPONE_PROTO_HOST_TARGET_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "stepone/v1/target.pb.h"

namespace stepone {

// The CPU target of this host, detected once. Thread-safe.
const v1::Target& HostTarget();

// `host` with its instruction set lowered to `isa` ("x86-64-v2", "x86-64-v3", "x86-64-v4", or the host's own name), so
// that a fleet of unlike hosts can share artifacts. kInvalidArgument when `isa` is unknown or above the host's.
absl::StatusOr<v1::Target> LowerTarget(const v1::Target& host, std::string_view isa);

// OK when code for `target` runs on `host`; kFailedPrecondition naming what the host lacks. Cache sizes do not matter.
absl::Status CheckRunsOn(const v1::Target& target, const v1::Target& host);

}  // namespace stepone

#endif  // STEPONE_PROTO_HOST_TARGET_H_
