#include "client/bridge.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "client/compile_client.h"
#include "client/object_loader.h"
#include "client/report_json.h"
#include "google/protobuf/util/json_util.h"
#include "proto/digest.h"
#include "proto/host_target.h"
#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

void SetSymInt(const SymInt& from, v1::SymInt* to) {
  if (const auto* value = std::get_if<int64_t>(&from)) {
    to->set_value(*value);
  } else {
    to->set_expr(std::get<std::string>(from));
  }
}

// Writes one argument's value; one overload for each alternative of GraphArgumentValue.
struct ArgumentWriter {
  v1::Argument& to;

  void operator()(std::monostate) const {}
  void operator()(GraphValueRef ref) const { to.set_value(ref.index); }
  void operator()(const OptionalBufferList& list) const {
    v1::ValueList& values = *to.mutable_value_list();
    for (const auto& entry : list) {
      values.add_values(entry.value_or(0));
      values.add_present(entry.has_value());
    }
  }
  void operator()(int64_t value) const { to.mutable_int_value()->set_value(value); }
  void operator()(const SymExpression& value) const { to.mutable_int_value()->set_expr(value.text); }
  void operator()(double value) const { to.set_float_value(value); }
  void operator()(bool value) const { to.set_bool_value(value); }
  void operator()(const std::string& value) const { to.set_string_value(value); }
  void operator()(const std::vector<SymInt>& list) const {
    v1::IntList& values = *to.mutable_int_list();
    for (const SymInt& entry : list) SetSymInt(entry, values.add_values());
  }
  void operator()(const std::vector<double>& list) const {
    v1::FloatList& values = *to.mutable_float_list();
    values.mutable_values()->Add(list.begin(), list.end());
  }
  void operator()(const std::vector<bool>& list) const {
    v1::BoolList& values = *to.mutable_bool_list();
    for (const bool entry : list) values.add_values(entry);
  }
  void operator()(const std::vector<std::string>& list) const {
    v1::StringList& values = *to.mutable_string_list();
    for (const std::string& entry : list) values.add_values(entry);
  }
  void operator()(DType dtype) const { to.set_dtype(static_cast<v1::DType>(dtype)); }
  void operator()(const DeviceName& device) const { to.mutable_device()->set_type(device.type); }
  void operator()(const LayoutName& layout) const { to.set_layout(layout.name); }
  void operator()(const MemoryFormatName& format) const { to.set_memory_format(format.name); }
  void operator()(const std::complex<double>& value) const {
    to.mutable_complex_value()->set_real(value.real());
    to.mutable_complex_value()->set_imag(value.imag());
  }
};

ServiceError ToError(const absl::Status& status) {
  const v1::ErrorDetail detail = ToErrorDetail(status);
  ServiceError error;
  error.code = absl::StatusCodeToString(status.code());
  error.message = detail.message();
  error.node = detail.node();
  error.rule = detail.rule();
  error.pass = detail.pass();
  error.reproducer_id = detail.reproducer_id();
  error.retry_after_ms = detail.retry_after_ms();
  error.known_values.assign(detail.known_values().begin(), detail.known_values().end());
  return error;
}

constexpr std::pair<std::string_view, v1::Mode> kModes[] = {
    {"default", v1::MODE_DEFAULT},
    {"reduce-overhead", v1::MODE_REDUCE_OVERHEAD},
    {"max-autotune", v1::MODE_MAX_AUTOTUNE},
    {"max-autotune-no-cudagraphs", v1::MODE_MAX_AUTOTUNE_NO_CUDAGRAPHS},
};

absl::StatusOr<v1::Mode> ModeFromName(const std::string& name) {
  v1::ErrorDetail detail;
  for (const auto& [known, mode] : kModes) {
    if (name == known) return mode;
    detail.add_known_values(std::string(known));
  }
  return WithDetail(absl::InvalidArgumentError(StrCat("unknown mode \"", name, "\"")), std::move(detail));
}

class RequestAdapter final : public ServiceRequest {
 public:
  explicit RequestAdapter(std::shared_ptr<CompileCall> call) : call_(std::move(call)) {}

  bool Wait(int64_t timeout_ms) override { return call_->Wait(absl::Milliseconds(timeout_ms)); }
  bool Done() const override { return call_->Done(); }
  void Cancel() override { call_->Cancel(); }
  std::optional<ServiceError> Error() const override {
    if (!call_->Done() || call_->status().ok()) return std::nullopt;
    return ToError(call_->status());
  }
  std::shared_ptr<const Program> program() const override {
    const std::shared_ptr<const CompiledGraph> graph = call_->result();
    return graph != nullptr ? graph->program : nullptr;
  }
  std::string ReportJson() const override {
    const std::shared_ptr<const CompiledGraph> graph = call_->result();
    return graph != nullptr ? client::ReportJson(*graph) : "{}";
  }
  std::string EventsJson() const override { return client::EventsJson(call_->events()); }

 private:
  const std::shared_ptr<CompileCall> call_;
};

std::string RoleName(v1::Role role) {
  switch (role) {
    case v1::ROLE_FORWARD:
      return "forward";
    case v1::ROLE_BACKWARD:
      return "backward";
    case v1::ROLE_INFERENCE:
      return "inference";
    default:
      return "joint";
  }
}

absl::Status FromProtobuf(const google::protobuf::util::Status& status) {
  return status.ok() ? absl::OkStatus()
                     : absl::InvalidArgumentError(StrCat("convention: ", std::string(status.message())));
}

absl::Status ConventionToJson(const v1::Convention& convention, std::string& json) {
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  return FromProtobuf(google::protobuf::util::MessageToJsonString(convention, &json, options));
}

absl::Status ConventionFromJson(const std::string& json, v1::Convention& convention) {
  return FromProtobuf(google::protobuf::util::JsonStringToMessage(json, &convention));
}

// `graph_keys`: role and key in hexadecimal, in any order. They are sent in the order that the service wants.
absl::Status SetGraphs(const std::vector<std::pair<std::string, std::string>>& graph_keys,
                       google::protobuf::RepeatedPtrField<v1::BundleGraph>& graphs) {
  for (const v1::Role role : {v1::ROLE_FORWARD, v1::ROLE_BACKWARD, v1::ROLE_INFERENCE}) {
    for (const auto& [name, key] : graph_keys) {
      if (name != RoleName(role)) continue;
      if (key.size() != 2 * Digest::kSize || !std::all_of(key.begin(), key.end(), absl::ascii_isxdigit)) {
        return absl::InvalidArgumentError(StrCat("graph key of ", name, " is no SHA-256 in hexadecimal"));
      }
      v1::BundleGraph& graph = *graphs.Add();
      graph.set_role(role);
      graph.set_graph_key(absl::HexStringToBytes(key));
    }
  }
  if (graphs.size() == static_cast<int>(graph_keys.size())) return absl::OkStatus();
  return absl::InvalidArgumentError("graph keys are told for forward, backward and inference");
}

// A request that could not even be sent.
class FailedRequest final : public ServiceRequest {
 public:
  explicit FailedRequest(ServiceError error) : error_(std::move(error)) {}

  bool Wait(int64_t) override { return true; }
  bool Done() const override { return true; }
  void Cancel() override {}
  std::optional<ServiceError> Error() const override { return error_; }
  std::shared_ptr<const Program> program() const override { return nullptr; }
  std::string ReportJson() const override { return "{}"; }
  std::string EventsJson() const override { return "[]"; }

 private:
  const ServiceError error_;
};

}  // namespace

struct GraphBuilder::Impl {
  v1::Graph graph;

  uint32_t AddValue(v1::Value value) {
    *graph.add_values() = std::move(value);
    return static_cast<uint32_t>(graph.values_size() - 1);
  }
};

GraphBuilder::GraphBuilder(GraphRole role) : impl_(std::make_unique<Impl>()) {
  impl_->graph.set_role(static_cast<v1::Role>(role));
}
GraphBuilder::GraphBuilder(GraphBuilder&&) noexcept = default;
GraphBuilder::~GraphBuilder() = default;

void GraphBuilder::AddSymbol(std::string name, int64_t hint, int64_t min, int64_t max) {
  v1::Symbol* symbol = impl_->graph.add_symbols();
  symbol->set_name(std::move(name));
  symbol->set_hint(hint);
  symbol->set_min(min);
  symbol->set_max(max);
}

uint32_t GraphBuilder::AddTensor(GraphTensor tensor) {
  v1::Value value;
  v1::TensorType& type = *value.mutable_tensor();
  type.set_dtype(static_cast<v1::DType>(tensor.dtype));
  type.set_other_dtype(std::move(tensor.other_dtype));
  for (const SymInt& size : tensor.sizes) SetSymInt(size, type.add_sizes());
  for (const SymInt& stride : tensor.strides) SetSymInt(stride, type.add_strides());
  SetSymInt(tensor.storage_offset, type.mutable_storage_offset());
  type.mutable_device()->set_type(std::move(tensor.device_type));
  type.mutable_device()->set_index(tensor.device_index);
  type.set_layout(std::move(tensor.layout));
  value.set_name(std::move(tensor.name));
  return impl_->AddValue(std::move(value));
}

uint32_t GraphBuilder::AddSymInt(SymInt number, std::string name) {
  v1::Value value;
  SetSymInt(number, value.mutable_sym_int());
  value.set_name(std::move(name));
  return impl_->AddValue(std::move(value));
}

uint32_t GraphBuilder::AddHostScalar(std::string name) {
  v1::Value value;
  value.set_host_scalar(true);
  value.set_name(std::move(name));
  return impl_->AddValue(std::move(value));
}

void GraphBuilder::AddInput(uint32_t value, bool is_static) {
  impl_->graph.add_inputs(value);
  if (is_static) impl_->graph.add_static_inputs(value);
}

void GraphBuilder::AddConstant(uint32_t value, std::string bytes) {
  v1::Constant* constant = impl_->graph.add_constants();
  constant->set_value(value);
  constant->set_data(std::move(bytes));
}

void GraphBuilder::AddNode(GraphNode from) {
  v1::Node& node = *impl_->graph.add_nodes();
  node.set_op(std::move(from.op));
  for (GraphArgument& argument : from.arguments) {
    v1::Argument& to = *node.add_arguments();
    to.set_name(std::move(argument.name));
    std::visit(ArgumentWriter{to}, argument.value);
  }
  for (const auto& result : from.results) node.add_results(result ? *result + 1 : 0);
  node.set_results_are_list(from.results_are_list);
  for (const auto& alias : from.result_aliases) node.add_result_aliases(alias ? *alias + 1 : 0);
  for (const uint32_t value : from.mutated) node.add_mutated_values(value);
  node.set_uses_rng(from.uses_rng);
  node.set_name(std::move(from.name));
  node.set_diagnostics(std::move(from.diagnostics));
}

void GraphBuilder::AddOutput(uint32_t value) { impl_->graph.add_outputs()->set_value(value); }
void GraphBuilder::AddIntOutput(SymInt value) { SetSymInt(value, impl_->graph.add_outputs()->mutable_int_value()); }
void GraphBuilder::AddNoneOutput() { impl_->graph.add_outputs()->set_none(true); }
int GraphBuilder::num_nodes() const { return impl_->graph.nodes_size(); }
std::string GraphBuilder::Serialize() const { return impl_->graph.SerializeAsString(); }

struct ServiceClient::Impl {
  explicit Impl(ClientConfig config) : client(std::move(config)) {}

  static absl::StatusOr<v1::CompileRequest> MakeRequest(const v1::Graph& graph, const SubmitOptions& options) {
    absl::StatusOr<v1::Mode> mode = ModeFromName(options.mode);
    if (!mode.ok()) return mode.status();
    v1::CompileRequest request;
    *request.mutable_graph() = graph;
    SetCodeOptions(*mode, options, *request.mutable_code_options());
    v1::RunOptions& run = *request.mutable_run_options();
    run.set_deadline_ms(options.deadline_ms);
    run.set_priority(options.priority);
    run.set_recompile(options.recompile);
    run.set_do_not_cache(options.do_not_cache);
    run.set_report(options.report);
    run.set_blocking_step(options.blocking_step);
    return request;
  }

  static absl::StatusOr<v1::TraceRequest> MakeTrace(const std::string& trace, const SubmitOptions& options) {
    absl::StatusOr<v1::Mode> mode = ModeFromName(options.mode);
    if (!mode.ok()) return mode.status();
    v1::TraceRequest request;
    request.set_trace(trace);
    SetCodeOptions(*mode, options, *request.mutable_code_options());
    return request;
  }

  static void SetCodeOptions(v1::Mode mode, const SubmitOptions& options, v1::CodeOptions& code) {
    code.set_mode(mode);
    code.set_backend(options.backend);
    code.set_deterministic(options.deterministic);
    code.set_fallback_random(options.fallback_random);
    code.set_disable_fusion(options.disable_fusion);
    code.set_framework_version(options.framework_version);
    for (const auto& [name, value] : options.backend_options) (*code.mutable_backend_options())[name] = value;
  }

  CompileClient client;
};

ServiceClient::ServiceClient(ClientConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
ServiceClient::~ServiceClient() = default;

std::shared_ptr<ServiceRequest> ServiceClient::Submit(const GraphBuilder& graph, const SubmitOptions& options) {
  absl::StatusOr<v1::CompileRequest> request = Impl::MakeRequest(graph.impl_->graph, options);
  if (!request.ok()) return std::make_shared<FailedRequest>(ToError(request.status()));
  return std::make_shared<RequestAdapter>(impl_->client.Submit(*std::move(request)));
}

ServiceResult<std::shared_ptr<ServiceRequest>> ServiceClient::Find(const GraphBuilder& graph,
                                                                   const SubmitOptions& options) {
  absl::StatusOr<v1::CompileRequest> request = Impl::MakeRequest(graph.impl_->graph, options);
  if (!request.ok()) return ToError(request.status());
  absl::StatusOr<std::shared_ptr<CompileCall>> call = impl_->client.Find(*std::move(request));
  if (!call.ok()) return ToError(call.status());
  if (*call == nullptr) return std::shared_ptr<ServiceRequest>();
  return std::shared_ptr<ServiceRequest>(std::make_shared<RequestAdapter>(*std::move(call)));
}

ServiceResult<std::string> ServiceClient::ExplainJson(const GraphBuilder& graph, const SubmitOptions& options) {
  absl::StatusOr<v1::CompileRequest> request = Impl::MakeRequest(graph.impl_->graph, options);
  if (!request.ok()) return ToError(request.status());
  absl::StatusOr<v1::ExplainResponse> response = impl_->client.Explain(*std::move(request));
  if (!response.ok()) return ToError(response.status());
  return client::ExplainJson(*response);
}

ServiceResult<std::string> ServiceClient::CapabilitiesJson() {
  absl::StatusOr<v1::GetCapabilitiesResponse> response = impl_->client.GetCapabilities();
  if (!response.ok()) return ToError(response.status());
  return client::CapabilitiesJson(*response);
}

ServiceResult<std::shared_ptr<const FoundBundleAnswer>> ServiceClient::FindBundle(const std::string& trace,
                                                                                  const SubmitOptions& options,
                                                                                  int64_t timeout_ms) {
  absl::StatusOr<v1::TraceRequest> request = Impl::MakeTrace(trace, options);
  if (!request.ok()) return ToError(request.status());
  absl::StatusOr<std::optional<FoundBundle>> found =
      impl_->client.FindBundle(*std::move(request), absl::Milliseconds(timeout_ms));
  if (!found.ok()) return ToError(found.status());
  if (!found->has_value()) return std::shared_ptr<const FoundBundleAnswer>();
  const FoundBundle& bundle = **found;
  auto answer = std::make_shared<FoundBundleAnswer>();
  answer->trace_key = absl::BytesToHexString(bundle.bundle.trace_key());
  if (absl::Status status = ConventionToJson(bundle.bundle.convention(), answer->convention_json); !status.ok()) {
    return ToError(status);
  }
  for (size_t i = 0; i < bundle.graphs.size(); ++i) {
    answer->graphs.push_back({RoleName(bundle.bundle.graphs(static_cast<int>(i)).role()), bundle.graphs[i]->program,
                              client::ReportJson(*bundle.graphs[i])});
  }
  return std::shared_ptr<const FoundBundleAnswer>(std::move(answer));
}

std::optional<ServiceError> ServiceClient::PutBundle(const std::string& trace, const std::string& convention_json,
                                                     const std::vector<std::pair<std::string, std::string>>& graph_keys,
                                                     const SubmitOptions& options) {
  absl::StatusOr<v1::TraceRequest> request = Impl::MakeTrace(trace, options);
  if (!request.ok()) return ToError(request.status());
  v1::PutBundleRequest put;
  *put.mutable_trace() = *std::move(request);
  if (absl::Status status = ConventionFromJson(convention_json, *put.mutable_convention()); !status.ok()) {
    return ToError(status);
  }
  if (absl::Status status = SetGraphs(graph_keys, *put.mutable_graphs()); !status.ok()) return ToError(status);
  impl_->client.PutBundle(std::move(put));
  return std::nullopt;
}

ServiceResult<std::string> ServiceClient::ExplainBundleJson(const std::string& trace, const SubmitOptions& options) {
  absl::StatusOr<v1::TraceRequest> request = Impl::MakeTrace(trace, options);
  if (!request.ok()) return ToError(request.status());
  absl::StatusOr<v1::ExplainResponse> response = impl_->client.ExplainBundle(*std::move(request));
  if (!response.ok()) return ToError(response.status());
  return client::ExplainJson(*response);
}

void ServiceClient::Connect() { impl_->client.Connect(); }

std::string ServiceClient::endpoint() const { return impl_->client.endpoint(); }
bool ServiceClient::circuit_open() const { return impl_->client.circuit_open(); }

ServiceCounters ProcessServiceCounters() {
  const CompileClient::Counters requests = CompileClient::ProcessCounters();
  const ObjectLoader::Counters objects = ObjectLoader::Global().counters();
  return {requests.requests,      requests.retries,     requests.verify_failures,
          objects.mapped,         objects.shared,       requests.bundle_hits,
          requests.bundle_misses, requests.bundles_put, requests.bundle_put_failures};
}

void ResetProcessServiceCounters() { CompileClient::ResetProcessCounters(); }

ServiceResult<std::string> HostTargetJson(const std::string& isa) {
  if (isa.empty()) return TargetJson(HostTarget());
  absl::StatusOr<v1::Target> target = LowerTarget(HostTarget(), isa);
  if (!target.ok()) return ToError(target.status());
  return TargetJson(*target);
}

}  // namespace stepone::client
