// The module stepone._native: Python's view of bridge.h and executable.h. stepone/_native.pyi documents it.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>

#include "client/arena_pool.h"
#include "client/bridge.h"
#include "client/executable.h"
#include "client/output_pool.h"
#include "client/python/src/graph_arguments.h"
#include "proto/kernel_abi.h"

namespace py = pybind11;

namespace stepone::client {
namespace {

// Thrown inside the module and turned into StepOneError at its edge.
struct ServiceFailure {
  ServiceError error;
};

PyObject* error_type = nullptr;  // stepone._native.StepOneError; lives as long as the interpreter

py::object MakeError(const ServiceError& error) {
  py::object instance = py::reinterpret_borrow<py::object>(error_type)(error.code + ": " + error.message);
  instance.attr("code") = error.code;
  instance.attr("message") = error.message;
  instance.attr("node") = error.node;
  instance.attr("rule") = error.rule;
  instance.attr("compiler_pass") = error.pass;
  instance.attr("reproducer_id") = error.reproducer_id;
  instance.attr("retry_after_ms") = error.retry_after_ms;
  instance.attr("known_values") = error.known_values;
  return instance;
}

template <typename T>
T ValueOrThrow(ServiceResult<T> result) {
  if (auto* error = std::get_if<ServiceError>(&result)) throw ServiceFailure{std::move(*error)};
  return std::get<T>(std::move(result));
}

py::object ParseJson(const std::string& text) { return py::module_::import("json").attr("loads")(text); }

SubmitOptions OptionsFrom(const py::kwargs& kwargs) {
  SubmitOptions options;
  for (const auto& [key, value] : kwargs) {
    const auto name = py::cast<std::string>(key);
    if (name == "mode")
      options.mode = py::cast<std::string>(value);
    else if (name == "backend")
      options.backend = py::cast<std::string>(value);
    else if (name == "deterministic")
      options.deterministic = py::cast<bool>(value);
    else if (name == "fallback_random")
      options.fallback_random = py::cast<bool>(value);
    else if (name == "disable_fusion")
      options.disable_fusion = py::cast<bool>(value);
    else if (name == "framework_version")
      options.framework_version = py::cast<std::string>(value);
    else if (name == "deadline_ms")
      options.deadline_ms = py::cast<int64_t>(value);
    else if (name == "priority")
      options.priority = py::cast<int32_t>(value);
    else if (name == "recompile")
      options.recompile = py::cast<bool>(value);
    else if (name == "do_not_cache")
      options.do_not_cache = py::cast<bool>(value);
    else if (name == "report")
      options.report = py::cast<bool>(value);
    else if (name == "blocking_step")
      options.blocking_step = py::cast<bool>(value);
    else if (name == "backend_options") {
      for (const auto& [option, setting] : py::cast<py::dict>(value)) {
        options.backend_options.emplace_back(py::cast<std::string>(option), py::cast<std::string>(setting));
      }
    } else {
      throw py::type_error("unknown option " + name);
    }
  }
  return options;
}

// Executable with Python's calling convention.
class PyExecutable {
 public:
  explicit PyExecutable(std::shared_ptr<const Program> program) : executable_(std::move(program)) {}

  Executable& get() { return executable_; }

  py::list Call(py::list& arguments) {
    std::vector<c10::IValue> inputs;
    inputs.reserve(arguments.size());
    for (py::handle argument : arguments) inputs.push_back(ToIValue(argument));
    if (std::string why = executable_.InputMismatch(inputs); !why.empty()) {
      ServiceError error;
      error.code = "INVALID_ARGUMENT";
      error.rule = "input-mismatch";
      error.message = std::move(why);
      throw ServiceFailure{std::move(error)};
    }
    if (PyList_SetSlice(arguments.ptr(), 0, PyList_GET_SIZE(arguments.ptr()), nullptr) != 0)
      throw py::error_already_set();
    std::vector<c10::IValue> outputs;
    {
      py::gil_scoped_release no_gil;
      outputs = executable_.RunChecked(std::move(inputs));
    }
    py::list results(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) results[i] = ToPython(outputs[i]);
    return results;
  }

 private:
  static c10::IValue ToIValue(py::handle value) {
    if (THPVariable_Check(value.ptr())) return THPVariable_Unpack(value.ptr());
    if (value.is_none()) return {};
    if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
    if (PyLong_Check(value.ptr())) return py::cast<int64_t>(value);
    if (PyFloat_Check(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
    if (PyIndex_Check(value.ptr()))
      return py::cast<int64_t>(py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr())));
    throw py::type_error("stepone: an input is neither tensor nor number");
  }

  static py::object ToPython(const c10::IValue& value) {
    if (value.isTensor()) return py::reinterpret_steal<py::object>(THPVariable_Wrap(value.toTensor()));
    if (value.isInt()) return py::int_(value.toInt());
    if (value.isDouble()) return py::float_(value.toDouble());
    if (value.isBool()) return py::bool_(value.toBool());
    return py::none();
  }

  Executable executable_;
};

// An artifact that this LibTorch can't run is the service's fault, not the training's.
std::shared_ptr<PyExecutable> Bind(std::shared_ptr<const Program> program) {
  try {
    return std::make_shared<PyExecutable>(std::move(program));
  } catch (const c10::Error& error) {
    ServiceError failure;
    failure.code = "INTERNAL";
    failure.rule = "unbindable-plan";
    failure.message = error.what_without_backtrace();
    throw ServiceFailure{std::move(failure)};
  }
}

// ServiceRequest, and the executable once it was asked for.
class PyRequest {
 public:
  explicit PyRequest(std::shared_ptr<ServiceRequest> request) : request_(std::move(request)) {}

  bool Wait(double timeout_s) const {
    py::gil_scoped_release no_gil;
    return request_->Wait(static_cast<int64_t>(std::min(timeout_s, 1e9) * 1000));
  }
  ServiceRequest& get() { return *request_; }

  // Guarded by the GIL, except while the plan is bound.
  std::shared_ptr<PyExecutable> executable() {
    if (executable_ != nullptr) return executable_;
    std::shared_ptr<PyExecutable> made;
    {
      py::gil_scoped_release no_gil;
      while (!request_->Wait(1'000'000)) {
      }
      if (std::optional<ServiceError> error = request_->Error()) throw ServiceFailure{*std::move(error)};
      made = Bind(request_->program());
    }
    if (executable_ == nullptr) executable_ = std::move(made);
    return executable_;
  }

  py::object error() const {
    const std::optional<ServiceError> error = request_->Error();
    return error ? MakeError(*error) : py::none();
  }

 private:
  const std::shared_ptr<ServiceRequest> request_;
  std::shared_ptr<PyExecutable> executable_;
};

// A found bundle, and its executables once they were asked for. Guarded by the GIL.
class PyBundle {
 public:
  explicit PyBundle(std::shared_ptr<const FoundBundleAnswer> answer)
      : answer_(std::move(answer)), executables_(answer_->graphs.size()) {}

  const FoundBundleAnswer& answer() const { return *answer_; }

  std::shared_ptr<PyExecutable> executable(const std::string& role) {
    const size_t at = PositionOf(role);
    if (executables_[at] == nullptr) executables_[at] = Bind(answer_->graphs[at].program);
    return executables_[at];
  }

  py::object report(const std::string& role) const { return ParseJson(answer_->graphs[PositionOf(role)].report_json); }

  std::vector<std::string> roles() const {
    std::vector<std::string> names;
    for (const FoundBundleGraph& graph : answer_->graphs) names.push_back(graph.role);
    return names;
  }

 private:
  size_t PositionOf(const std::string& role) const {
    for (size_t i = 0; i < answer_->graphs.size(); ++i) {
      if (answer_->graphs[i].role == role) return i;
    }
    throw py::key_error("the bundle has no graph " + role);
  }

  const std::shared_ptr<const FoundBundleAnswer> answer_;
  std::vector<std::shared_ptr<PyExecutable>> executables_;
};

// The destructor waits for request threads, which must not happen with the GIL held.
struct ReleaseGilDeleter {
  void operator()(ServiceClient* client) const {
    py::gil_scoped_release no_gil;
    delete client;
  }
};
using ClientHolder = std::unique_ptr<ServiceClient, ReleaseGilDeleter>;

template <typename Function>
auto WithoutGil(Function function) {
  py::gil_scoped_release no_gil;
  return function();
}

py::list ProfileOf(PyExecutable& executable) {
  const Plan& plan = executable.get().plan();
  const std::vector<Executable::StepProfile> profile = executable.get().Profile();
  py::list rows;
  for (size_t i = 0; i < profile.size(); ++i) {
    const Step& step = plan.steps[i];
    const auto* launch = std::get_if<LaunchStep>(&step);
    const auto* call = std::get_if<CallStep>(&step);
    const char* kinds[] = {"launch", "call", "seed", "free", "copy"};
    py::dict row;
    row["step"] = i;
    row["kind"] = kinds[step.index()];
    row["name"] = launch != nullptr ? plan.kernels[launch->kernel].name : call != nullptr ? call->op : std::string();
    row["calls"] = profile[i].calls;
    row["total_us"] = static_cast<double>(profile[i].nanoseconds) * 1e-3;
    rows.append(row);
  }
  return rows;
}

py::dict CountersOf(const ExecutionCounters& counters) {
  py::dict dict;
  dict["runs"] = counters.runs;
  dict["kernel_launches"] = counters.kernel_launches;
  dict["extern_calls"] = counters.extern_calls;
  dict["restrided"] = counters.restrided;
  dict["errors"] = counters.errors;
  return dict;
}

py::dict ProcessCounters() {
  py::dict dict = CountersOf(ProcessExecutionCounters());
  const OutputPool::Counters outputs = OutputPool::Global().counters();
  dict["output_pool_hits"] = outputs.hits;
  dict["output_pool_misses"] = outputs.misses;
  dict["output_pool_bytes"] = outputs.idle_bytes + outputs.used_bytes;
  const ArenaPool::Counters arenas = ArenaPool::Global().counters();
  dict["arena_hits"] = arenas.hits;
  dict["arena_misses"] = arenas.misses;
  dict["arena_bytes"] = arenas.idle_bytes;
  const ServiceCounters service = ProcessServiceCounters();
  dict["objects_mapped"] = service.objects_mapped;
  dict["objects_shared"] = service.objects_shared;
  dict["requests"] = service.requests;
  dict["retries"] = service.retries;
  dict["verify_failures"] = service.verify_failures;
  dict["bundle_hits"] = service.bundle_hits;
  dict["bundle_misses"] = service.bundle_misses;
  dict["bundles_put"] = service.bundles_put;
  dict["bundle_put_failures"] = service.bundle_put_failures;
  return dict;
}

void BindConfig(py::module_& module) {
  py::class_<ClientConfig>(module, "Config")
      .def(py::init<>())
      .def_static("from_env",
                  [] {
                    absl::StatusOr<ClientConfig> config = ConfigFromEnvironment();
                    if (!config.ok()) throw py::value_error(std::string(config.status().message()));
                    return *std::move(config);
                  })
      .def_readwrite("endpoint", &ClientConfig::endpoint)
      .def_readwrite("home", &ClientConfig::home)
      .def_readwrite("server_path", &ClientConfig::server_path)
      .def_readwrite("server_arguments", &ClientConfig::server_arguments)
      .def_property(
          "trusted_keys",
          [](const ClientConfig& config) {
            py::list keys;
            for (const std::string& key : config.trusted_keys) keys.append(py::bytes(key));
            return keys;
          },
          [](ClientConfig& config, const std::vector<py::bytes>& keys) {
            config.trusted_keys.assign(keys.begin(), keys.end());
          })
      .def_readwrite("trusted_keys_file", &ClientConfig::trusted_keys_file)
      .def_readwrite("tls_ca_file", &ClientConfig::tls_ca_file)
      .def_readwrite("tls_cert_file", &ClientConfig::tls_cert_file)
      .def_readwrite("tls_key_file", &ClientConfig::tls_key_file)
      .def_readwrite("token_file", &ClientConfig::token_file)
      .def_readwrite("tenant", &ClientConfig::tenant)
      .def_readwrite("job", &ClientConfig::job)
      .def_readwrite("rank", &ClientConfig::rank)
      .def_readwrite("isa", &ClientConfig::isa)
      .def_readwrite("connect_timeout_ms", &ClientConfig::connect_timeout_ms)
      .def_readwrite("request_timeout_ms", &ClientConfig::request_timeout_ms)
      .def_readwrite("server_start_timeout_ms", &ClientConfig::server_start_timeout_ms);
}

void BindExecution(py::module_& module) {
  py::class_<PyExecutable, std::shared_ptr<PyExecutable>> executable(module, "Executable");
  executable.def("__call__", &PyExecutable::Call, py::arg("args"))
      .def_property_readonly("num_inputs", [](PyExecutable& e) { return e.get().plan().inputs.size(); })
      .def_property_readonly("num_outputs", [](PyExecutable& e) { return e.get().plan().outputs.size(); })
      .def_property_readonly("num_launches", [](PyExecutable& e) { return e.get().num_launches(); })
      .def_property_readonly("num_calls", [](PyExecutable& e) { return e.get().num_calls(); })
      .def_property_readonly("arena_bytes", [](PyExecutable& e) { return e.get().plan().arena_bytes; })
      .def("counters", [](PyExecutable& e) { return CountersOf(e.get().counters()); })
      .def("describe", [](PyExecutable& e) { return DescribePlan(e.get().plan()); })
      .def(
          "set_profiling", [](PyExecutable& e, bool on) { e.get().SetProfiling(on); }, py::arg("on"))
      .def("profile", &ProfileOf);
  executable.attr("_boxed_call") = true;  // AOTAutograd asks for it: the list of arguments is ours to empty
  module.def("counters", &ProcessCounters);
  module.def("reset_counters", [] {
    ResetProcessExecutionCounters();
    OutputPool::Global().ResetCounters();
    ArenaPool::Global().ResetCounters();
    ResetProcessServiceCounters();
  });
}

// ValueError for what JSON can't say.
std::string DumpJson(const py::dict& value) {
  try {
    return py::cast<std::string>(py::module_::import("json").attr("dumps")(value));
  } catch (const py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    throw py::value_error(error.what());
  }
}

void BindBundles(py::module_& module, py::class_<ServiceClient, ClientHolder>& client) {
  py::class_<PyBundle, std::shared_ptr<PyBundle>>(module, "Bundle")
      .def_property_readonly("trace_key", [](const PyBundle& bundle) { return bundle.answer().trace_key; })
      .def_property_readonly("roles", &PyBundle::roles)
      .def_property_readonly("convention",
                             [](const PyBundle& bundle) { return ParseJson(bundle.answer().convention_json); })
      .def("executable", &PyBundle::executable, py::arg("role"))
      .def("report", &PyBundle::report, py::arg("role"));
  client
      .def(
          "find_bundle",
          [](ServiceClient& client, const py::bytes& trace, double timeout_s, const py::kwargs& kwargs) {
            const SubmitOptions options = OptionsFrom(kwargs);
            const std::string text = trace;
            std::shared_ptr<const FoundBundleAnswer> found = ValueOrThrow(
                WithoutGil([&] { return client.FindBundle(text, options, static_cast<int64_t>(timeout_s * 1000)); }));
            return found != nullptr ? std::make_shared<PyBundle>(std::move(found)) : nullptr;
          },
          py::arg("trace"), py::kw_only(), py::arg("timeout_s"))
      .def(
          "put_bundle",
          [](ServiceClient& client, const py::bytes& trace, const py::dict& convention,
             const std::map<std::string, std::string>& graph_keys, const py::kwargs& kwargs) {
            const std::optional<ServiceError> error = client.PutBundle(
                trace, DumpJson(convention), {graph_keys.begin(), graph_keys.end()}, OptionsFrom(kwargs));
            if (error) throw py::value_error(error->message);
          },
          py::arg("trace"), py::arg("convention"), py::arg("graph_keys"))
      .def(
          "explain_bundle",
          [](ServiceClient& client, const py::bytes& trace, const py::kwargs& kwargs) {
            const SubmitOptions options = OptionsFrom(kwargs);
            const std::string text = trace;
            return ParseJson(ValueOrThrow(WithoutGil([&] { return client.ExplainBundleJson(text, options); })));
          },
          py::arg("trace"));
}

void BindClient(py::module_& module) {
  py::class_<PyRequest, std::shared_ptr<PyRequest>>(module, "Request")
      .def("wait", &PyRequest::Wait, py::arg("timeout_s"))
      .def("done", [](PyRequest& request) { return request.get().Done(); })
      .def("cancel", [](PyRequest& request) { request.get().Cancel(); })
      .def("executable", &PyRequest::executable)
      .def("error", &PyRequest::error)
      .def("events", [](PyRequest& request) { return ParseJson(request.get().EventsJson()); })
      .def("report", [](PyRequest& request) { return ParseJson(request.get().ReportJson()); });
  py::class_<ServiceClient, ClientHolder> client(module, "Client");
  client
      .def(py::init([](const ClientConfig& config) { return ClientHolder(new ServiceClient(config)); }),
           py::arg("config"))
      .def("submit",
           [](ServiceClient& client, const GraphBuilder& graph, const py::kwargs& kwargs) {
             return std::make_shared<PyRequest>(client.Submit(graph, OptionsFrom(kwargs)));
           })
      .def("find",
           [](ServiceClient& client, const GraphBuilder& graph, const py::kwargs& kwargs) {
             const SubmitOptions options = OptionsFrom(kwargs);
             std::shared_ptr<ServiceRequest> found =
                 ValueOrThrow(WithoutGil([&] { return client.Find(graph, options); }));
             return found != nullptr ? std::make_shared<PyRequest>(std::move(found)) : nullptr;
           })
      .def("explain",
           [](ServiceClient& client, const GraphBuilder& graph, const py::kwargs& kwargs) {
             const SubmitOptions options = OptionsFrom(kwargs);
             return ParseJson(ValueOrThrow(WithoutGil([&] { return client.ExplainJson(graph, options); })));
           })
      .def("capabilities",
           [](ServiceClient& client) {
             return ParseJson(ValueOrThrow(WithoutGil([&] { return client.CapabilitiesJson(); })));
           })
      .def("connect", &ServiceClient::Connect)
      .def_property_readonly("endpoint", &ServiceClient::endpoint)
      .def("circuit_open", &ServiceClient::circuit_open);
  BindBundles(module, client);
  module.def(
      "host_target", [](const std::string& isa) { return ParseJson(ValueOrThrow(HostTargetJson(isa))); },
      py::arg("isa") = "");
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.attr("KERNEL_ABI_VERSION") = STEPONE_KERNEL_ABI_VERSION;
  error_type = PyErr_NewExceptionWithDoc("stepone._native.StepOneError", "What the service answered.",
                                         PyExc_RuntimeError, nullptr);
  module.add_object("StepOneError", py::reinterpret_borrow<py::object>(error_type));
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      std::rethrow_exception(pointer);
    } catch (const ServiceFailure& failure) {
      PyErr_SetObject(error_type, MakeError(failure.error).ptr());
    } catch (const c10::Error&) {
      torch::translate_exception_to_python(std::current_exception());  // IndexError, ValueError, ... as in torch
    }
  });
  BindConfig(module);
  BindGraphBuilder(module);
  BindExecution(module);
  BindClient(module);
}

}  // namespace stepone::client
