// Whether a calling convention, which a client tells, fits the plans that it is said to call.
#ifndef STEPONE_SERVER_BUNDLE_CHECK_H_
#define STEPONE_SERVER_BUNDLE_CHECK_H_

#include <vector>

#include "absl/status/status.h"
#include "server/request_limits.h"
#include "stepone/v1/artifact.pb.h"
#include "stepone/v1/bundle.pb.h"

namespace stepone::server {

// OK, or kInvalidArgument with a detail whose rule is "bundle-roles": the graphs must be forward and backward, or
// inference alone, as the convention says.
absl::Status CheckBundleRoles(const v1::Convention& convention,
                              const google::protobuf::RepeatedPtrField<v1::BundleGraph>& graphs);

// OK, or kInvalidArgument with a detail that names the rule: "convention-counts" (numbers of inputs, outputs, saved
// values, gradients or tangents do not fit each other or the plans, or there are some without a backward),
// "convention-index" (a position that does not exist, or more positions than exist), "convention-kind" (unknown kind of
// output, or layout of a tangent). `manifests`: in the order of the graphs.
absl::Status CheckConvention(const v1::Convention& convention, const std::vector<v1::Manifest>& manifests,
                             const RequestLimits& limits);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_BUNDLE_CHECK_H_
