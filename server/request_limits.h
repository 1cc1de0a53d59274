// What a request must satisfy before anything else looks at it.
#ifndef STEPONE_SERVER_REQUEST_LIMITS_H_
#define STEPONE_SERVER_REQUEST_LIMITS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "stepone/v1/compile_service.pb.h"
#include "stepone/v1/target.pb.h"

namespace stepone::server {

// Bounds; a request at a bound is accepted.
struct RequestLimits {
  size_t max_request_bytes = 256u << 20;
  int max_nodes = 200'000;
  int max_values = 1'000'000;
  int max_dimensions = 64;
  int max_name_bytes = 256;
  int max_text_bytes = 64 * 1024;  // a string argument
  int max_backend_options = 64;
  int max_expression_depth = 64;
  // Arguments, sizes and list elements of the whole graph: what work on a request is proportional to.
  int64_t max_elements = 20'000'000;
};

// What the workers offer.
struct Offer {
  std::vector<v1::Target> targets;
  std::vector<v1::BackendCapability> backends;
};

// The four modes that a request may name, as in CodeOptions.mode.
const std::vector<std::string>& KnownModes();

// OK, or kInvalidArgument with a detail that names the rule and, for faults of the graph, the node. Rules:
//   request-too-large, too-many-nodes, too-many-values, too-many-elements, too-many-dimensions, name, text-too-long,
//   unknown-mode, unknown-backend, unknown-target (with the known values), unknown-role, unknown-dtype, type,
//   expression, symbol, undefined-value, duplicate-definition, cycle (a use before the definition), constant-size,
//   op-name, alias, static-input, digest.
// A backend that is known but not available here is kUnimplemented with its reason. Takes time linear in the request
// and allocates no more than the request itself.
absl::Status CheckRequest(const v1::CompileRequest& request, const RequestLimits& limits, const Offer& offer);

// The same for a captured graph, whose text is not looked into. Rules: request-too-large, name, digest, unknown-mode,
// unknown-backend, unknown-target, trace (there is none), text-too-long, too-many-elements.
absl::Status CheckRequest(const v1::TraceRequest& request, const RequestLimits& limits, const Offer& offer);

// OK when `name` may stand in a log line, a file name or a label: ASCII letters, digits and "_.:/@-", not too long, no
// "..". May be empty. `what` is for the message: kInvalidArgument, rule "name".
absl::Status CheckName(absl::string_view name, absl::string_view what, const RequestLimits& limits);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_REQUEST_LIMITS_H_
