// The compile client without protobuf in sight, for files that include LibTorch.
#ifndef STEPONE_CLIENT_BRIDGE_H_
#define STEPONE_CLIENT_BRIDGE_H_

#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/client_config.h"
#include "client/plan.h"

namespace stepone::client {

// A size, stride or integer argument: a number, or an expression in prefix notation over the graph's symbols.
using SymInt = std::variant<int64_t, std::string>;

// An op's argument in a graph that is being built; numbers in value lists are indices of values.
struct GraphValueRef {
  uint32_t index = 0;
};
struct SymExpression {
  std::string text;
};
using GraphArgumentValue =
    std::variant<std::monostate, GraphValueRef, OptionalBufferList, int64_t, SymExpression, double, bool, std::string,
                 std::vector<SymInt>, std::vector<double>, std::vector<bool>, std::vector<std::string>, DType,
                 DeviceName, LayoutName, MemoryFormatName, std::complex<double>>;
struct GraphArgument {
  std::string name;
  GraphArgumentValue value;
};

struct GraphTensor {
  DType dtype = DType::kFloat32;
  std::string other_dtype;  // for kOther
  std::vector<SymInt> sizes;
  std::vector<SymInt> strides;
  SymInt storage_offset = int64_t{0};
  std::string device_type = "cpu";
  int32_t device_index = 0;
  std::string layout;
  std::string name;
};

struct GraphNode {
  std::string op;
  std::vector<GraphArgument> arguments;
  std::vector<std::optional<uint32_t>> results;
  bool results_are_list = false;
  std::vector<std::optional<uint32_t>> result_aliases;
  std::vector<uint32_t> mutated;
  bool uses_rng = false;
  std::string name;
  std::string diagnostics;
};

enum class GraphRole : uint8_t { kForward = 1, kBackward = 2, kJoint = 3, kInference = 4 };

// Builds one graph. Not thread-safe. Indices that do not exist are found by the service, not here.
class GraphBuilder {
 public:
  explicit GraphBuilder(GraphRole role);
  GraphBuilder(GraphBuilder&&) noexcept;
  ~GraphBuilder();

  void AddSymbol(std::string name, int64_t hint, int64_t min, int64_t max);
  uint32_t AddTensor(GraphTensor tensor);
  uint32_t AddSymInt(SymInt value, std::string name);
  uint32_t AddHostScalar(std::string name);
  void AddInput(uint32_t value, bool is_static);
  void AddConstant(uint32_t value, std::string bytes);
  void AddNode(GraphNode node);
  void AddOutput(uint32_t value);
  void AddIntOutput(SymInt value);
  void AddNoneOutput();
  int num_nodes() const;
  std::string Serialize() const;

 private:
  friend class ServiceClient;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct SubmitOptions {
  std::string mode = "default";
  std::string backend = "stepone";
  bool deterministic = false;
  bool fallback_random = false;
  bool disable_fusion = false;
  std::string framework_version;
  std::vector<std::pair<std::string, std::string>> backend_options;
  int64_t deadline_ms = 0;
  int32_t priority = 0;
  bool recompile = false;
  bool do_not_cache = false;
  bool report = true;
  bool blocking_step = false;
};

// What went wrong, as the service told it.
struct ServiceError {
  std::string code;  // "UNAVAILABLE", ...
  std::string message;
  std::string node, rule, pass, reproducer_id;
  int64_t retry_after_ms = 0;
  std::vector<std::string> known_values;
};

// Either a value or an error.
template <typename T>
using ServiceResult = std::variant<T, ServiceError>;

// A request that is under way; see CompileCall. Thread-safe.
class ServiceRequest {
 public:
  virtual ~ServiceRequest() = default;
  virtual bool Wait(int64_t timeout_ms) = 0;
  virtual bool Done() const = 0;
  virtual void Cancel() = 0;
  // The error after a bad end; nothing while it runs and after success.
  virtual std::optional<ServiceError> Error() const = 0;
  // Null until a good end.
  virtual std::shared_ptr<const Program> program() const = 0;
  virtual std::string ReportJson() const = 0;  // "{}" until a good end
  virtual std::string EventsJson() const = 0;
};

// What a captured graph became (see CompileClient::FindBundle).
struct FoundBundleGraph {
  std::string role;  // "forward", "backward", "inference"
  std::shared_ptr<const Program> program;
  std::string report_json;  // as ServiceRequest::ReportJson()
};
struct FoundBundleAnswer {
  std::string trace_key;        // hexadecimal
  std::string convention_json;  // stepone.v1.Convention in protobuf's JSON form, all plain fields present
  std::vector<FoundBundleGraph> graphs;
};

// CompileClient for files that can't include protobuf. Thread-safe.
class ServiceClient {
 public:
  explicit ServiceClient(ClientConfig config);
  ~ServiceClient();

  // An unknown mode is an error of the returned request, like everything that the service refuses.
  std::shared_ptr<ServiceRequest> Submit(const GraphBuilder& graph, const SubmitOptions& options);
  // Null: the service does not have it.
  ServiceResult<std::shared_ptr<ServiceRequest>> Find(const GraphBuilder& graph, const SubmitOptions& options);
  ServiceResult<std::string> ExplainJson(const GraphBuilder& graph, const SubmitOptions& options);
  ServiceResult<std::string> CapabilitiesJson();
  // Null: the service does not know it.
  ServiceResult<std::shared_ptr<const FoundBundleAnswer>> FindBundle(const std::string& trace,
                                                                     const SubmitOptions& options, int64_t timeout_ms);
  // `graph_keys`: role and key in hexadecimal. Returns at once; an error is one of the arguments.
  std::optional<ServiceError> PutBundle(const std::string& trace, const std::string& convention_json,
                                        const std::vector<std::pair<std::string, std::string>>& graph_keys,
                                        const SubmitOptions& options);
  ServiceResult<std::string> ExplainBundleJson(const std::string& trace, const SubmitOptions& options);
  void Connect();
  std::string endpoint() const;
  bool circuit_open() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct ServiceCounters {
  int64_t requests = 0, retries = 0, verify_failures = 0, objects_mapped = 0, objects_shared = 0;
  int64_t bundle_hits = 0, bundle_misses = 0, bundles_put = 0, bundle_put_failures = 0;
};
ServiceCounters ProcessServiceCounters();
void ResetProcessServiceCounters();

// What this host asks for; kInvalidArgument for an instruction set that it can not pretend to be.
ServiceResult<std::string> HostTargetJson(const std::string& isa);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_BRIDGE_H_
