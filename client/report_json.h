// What the client knows about a request, as JSON. client/python/stepone/_native.pyi documents the keys.
#ifndef STEPONE_CLIENT_REPORT_JSON_H_
#define STEPONE_CLIENT_REPORT_JSON_H_

#include <string>
#include <vector>

#include "client/compile_client.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::client {

std::string ReportJson(const CompiledGraph& graph);
std::string EventsJson(const std::vector<CallEvent>& events);
std::string ExplainJson(const v1::ExplainResponse& response);
std::string CapabilitiesJson(const v1::GetCapabilitiesResponse& response);
std::string TargetJson(const v1::Target& target);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_REPORT_JSON_H_
