// Errors as they travel: absl::Status inside a process, ErrorDetail on the wire.
//
// A code tells the caller what to do:
//   kInvalidArgument     the request is wrong; the message names the node and the rule. Do not retry.
//   kUnimplemented       run eagerly and say so once.
//   kResourceExhausted,
//   kUnavailable         retry after the given delay.
//   kDeadlineExceeded    took too long; run eagerly, the result may be ready later.
//   kNotFound            no such key, object or operation.
//   kPermissionDenied,
//   kUnauthenticated     who asks may not; fix the configuration.
//   kDataLoss            stored bytes are damaged; they were set aside.
//   kInternal            a bug of stepone; a reproducer id is attached.
#ifndef STEPONE_PROTO_STATUS_H_
#define STEPONE_PROTO_STATUS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "stepone/v1/error.pb.h"

namespace stepone {

// Attaches `detail` to `status`; its code and message fields are filled in from the status.
// `status` must not be OK.
absl::Status WithDetail(absl::Status status, v1::ErrorDetail detail);

// The wire form: the attached detail if there is one, with code and message set. Messages are cut to 1,024 bytes.
v1::ErrorDetail ToErrorDetail(const absl::Status& status);

// The inverse. A detail with code 0, or one that is no absl::StatusCode, becomes kInternal.
absl::Status FromErrorDetail(const v1::ErrorDetail& detail);

// Shorthand for the most frequent error: kInvalidArgument naming the node and the rule.
absl::Status InvalidNode(std::string_view node, std::string_view rule, std::string_view message);

}  // namespace stepone

#endif  // STEPONE_PROTO_STATUS_H_
