#include "client/report_json.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "client/json_writer.h"

namespace stepone::client {
namespace {

std::string Hex(const std::string& raw) { return absl::BytesToHexString(raw); }

std::string_view SourceName(v1::Source source) {
  switch (source) {
    case v1::SOURCE_COMPILED:
      return "compiled";
    case v1::SOURCE_JOINED:
      return "joined";
    case v1::SOURCE_MEMORY:
      return "memory";
    case v1::SOURCE_DISK:
      return "disk";
    case v1::SOURCE_REMOTE:
      return "remote";
    default:
      return "unknown";
  }
}

std::string_view KindName(CallEvent::Kind kind) {
  switch (kind) {
    case CallEvent::Kind::kAccepted:
      return "accepted";
    case CallEvent::Kind::kQueued:
      return "queued";
    case CallEvent::Kind::kStage:
      return "stage";
    case CallEvent::Kind::kRetry:
      return "retry";
    case CallEvent::Kind::kDone:
      return "done";
    case CallEvent::Kind::kFailed:
      return "failed";
  }
  return "unknown";
}

template <typename Strings>
void WriteStrings(JsonWriter& json, std::string_view name, const Strings& strings) {
  json.BeginList(name);
  for (const std::string& text : strings) json.Text({}, text);
  json.EndList();
}

void WriteKernels(JsonWriter& json, const v1::Manifest& manifest) {
  absl::flat_hash_map<std::string, const v1::KernelRecord*> records;
  for (const v1::KernelRecord& record : manifest.report().kernels()) records[record.name()] = &record;
  json.BeginList("kernels");
  for (const v1::Kernel& kernel : manifest.kernels()) {
    json.BeginObject();
    json.Text("name", kernel.name());
    WriteStrings(json, "source_ops", kernel.source_ops());
    json.Integer("bytes_moved", kernel.bytes_moved());
    json.Integer("flops", kernel.flops());
    json.Text("object", Hex(manifest.objects(static_cast<int>(kernel.object())).digest()));
    const auto found = records.find(kernel.name());
    const v1::KernelRecord& record = found != records.end() ? *found->second : v1::KernelRecord::default_instance();
    json.Flag("reused", record.reused());
    json.Number("codegen_ms", record.codegen_ms());
    json.Number("compile_ms", record.compile_ms());
    json.Number("link_ms", record.link_ms());
    json.EndObject();
  }
  json.EndList();
}

void WriteCompilation(JsonWriter& json, const v1::CompileReport& report) {
  json.Integer("graph_ops", report.graph_ops());
  json.Integer("fused_ops", report.fused_ops());
  json.Integer("bytes_moved", report.bytes_moved());
  json.Integer("fused_bytes_moved", report.fused_bytes_moved());
  WriteStrings(json, "extern_ops", report.extern_ops());
  WriteStrings(json, "notes", report.notes());
  json.Number("worker_total_ms", report.total_ms());
  json.Number("worker_cpu_ms", report.cpu_ms());
  json.BeginList("passes");
  for (const v1::PassRecord& pass : report.passes()) {
    json.BeginObject();
    json.Text("name", pass.name());
    json.Number("milliseconds", pass.milliseconds());
    json.Flag("changed", pass.changed());
    json.Integer("nodes_after", pass.nodes_after());
    json.EndObject();
  }
  json.EndList();
  json.BeginList("fusions");
  for (const v1::FusionRecord& fusion : report.fusions()) {
    json.BeginObject();
    json.Text("first", fusion.first());
    json.Text("second", fusion.second());
    json.Number("score_bytes", fusion.score_bytes());
    json.Flag("taken", fusion.taken());
    json.Text("reason", fusion.reason());
    json.EndObject();
  }
  json.EndList();
}

void WriteTarget(JsonWriter& json, const v1::Target& target, std::string_view name = {}) {
  json.BeginObject(name);
  json.Text("device_type", target.device_type());
  json.Text("isa", target.isa());
  WriteStrings(json, "features", target.features());
  json.Integer("vector_bytes", target.vector_bytes());
  json.Integer("l1d_bytes", target.l1d_bytes());
  json.Integer("l2_bytes", target.l2_bytes());
  json.EndObject();
}

}  // namespace

std::string ReportJson(const CompiledGraph& graph) {
  JsonWriter json;
  json.BeginObject();
  json.Text("graph_key", Hex(graph.graph_key));
  json.Text("source", SourceName(graph.source));
  json.Integer("queue_ms", graph.queue_ms);
  json.Integer("compile_ms", graph.compile_ms);
  json.Number("total_ms", graph.total_ms);
  json.Integer("attempts", graph.attempts);
  json.Text("compiler_fingerprint", graph.manifest.compiler_fingerprint());
  json.Integer("arena_bytes", static_cast<int64_t>(graph.manifest.arena_bytes()));
  int64_t object_bytes = 0;
  for (const v1::ObjectRef& object : graph.manifest.objects())
    object_bytes += static_cast<int64_t>(object.size_bytes());
  json.Integer("object_bytes", object_bytes);
  json.Integer("objects", graph.manifest.objects_size());
  WriteTarget(json, graph.manifest.target(), "target");
  WriteCompilation(json, graph.manifest.report());
  WriteKernels(json, graph.manifest);
  json.EndObject();
  return json.Take();
}

std::string EventsJson(const std::vector<CallEvent>& events) {
  JsonWriter json;
  json.BeginList();
  for (const CallEvent& event : events) {
    json.BeginObject();
    json.Text("kind", KindName(event.kind));
    json.Number("at_ms", event.at_ms);
    switch (event.kind) {
      case CallEvent::Kind::kAccepted:
        json.Text("graph_key", event.text);
        json.Flag("joined", event.first != 0);
        break;
      case CallEvent::Kind::kQueued:
        json.Integer("position", event.first);
        json.Integer("eta_ms", event.second);
        break;
      case CallEvent::Kind::kStage:
        json.Text("name", event.text);
        json.Integer("kernels_done", event.first);
        json.Integer("kernels_total", event.second);
        break;
      case CallEvent::Kind::kRetry:
        json.Text("message", event.text);
        json.Integer("delay_ms", event.first);
        break;
      case CallEvent::Kind::kFailed:
        json.Text("message", event.text);
        break;
      case CallEvent::Kind::kDone:
        break;
    }
    json.EndObject();
  }
  json.EndList();
  return json.Take();
}

std::string ExplainJson(const v1::ExplainResponse& response) {
  JsonWriter json;
  json.BeginObject();
  json.Text("graph_key", Hex(response.graph_key()));
  json.Flag("found", response.found());
  json.Text("nearest_key", Hex(response.nearest_key()));
  json.BeginList("differences");
  for (const v1::FieldDifference& difference : response.differences()) {
    json.BeginObject();
    json.Text("field", difference.field());
    json.Text("requested", difference.requested());
    json.Text("nearest", difference.nearest());
    json.EndObject();
  }
  json.EndList();
  json.EndObject();
  return json.Take();
}

std::string CapabilitiesJson(const v1::GetCapabilitiesResponse& response) {
  JsonWriter json;
  json.BeginObject();
  json.Text("server_version", response.server_version());
  json.Text("compiler_fingerprint", response.compiler_fingerprint());
  json.BeginList("backends");
  for (const v1::BackendCapability& backend : response.backends()) {
    json.BeginObject();
    json.Text("name", backend.name());
    json.Flag("available", backend.available());
    json.Text("reason", backend.reason());
    WriteStrings(json, "device_types", backend.device_types());
    json.EndObject();
  }
  json.EndList();
  WriteStrings(json, "modes", response.modes());
  json.BeginList("targets");
  for (const v1::Target& target : response.targets()) WriteTarget(json, target);
  json.EndList();
  json.Text("public_key", Hex(response.public_key()));
  json.Integer("max_request_bytes", static_cast<int64_t>(response.max_request_bytes()));
  json.Integer("max_graph_nodes", static_cast<int64_t>(response.max_graph_nodes()));
  json.Integer("inline_object_bytes", static_cast<int64_t>(response.inline_object_bytes()));
  json.EndObject();
  return json.Take();
}

std::string TargetJson(const v1::Target& target) {
  JsonWriter json;
  WriteTarget(json, target);
  return json.Take();
}

}  // namespace stepone::client
