// Manifest (protobuf) to Plan (plain C++).
#ifndef STEPONE_CLIENT_PLAN_FROM_MANIFEST_H_
#define STEPONE_CLIENT_PLAN_FROM_MANIFEST_H_

#include "absl/status/statusor.h"
#include "client/plan.h"
#include "stepone/v1/artifact.pb.h"

namespace stepone::client {

// Converts and checks (CheckPlan). kDataLoss names the entry that is damaged; kUnimplemented for a step, argument or
// input kind that this client does not know.
absl::StatusOr<Plan> PlanFromManifest(const v1::Manifest& manifest);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_PLAN_FROM_MANIFEST_H_
