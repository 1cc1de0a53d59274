#include "client/python/src/graph_arguments.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <pybind11/stl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/autograd/python_variable.h>

#include "client/bridge.h"

namespace py = pybind11;

namespace stepone::client {
namespace {

struct PyValue {
  uint32_t index = 0;
};

struct PySymExpr {
  std::string expr;
};

DType FromScalarType(c10::ScalarType type) {
  switch (type) {
    case c10::kDouble:
      return DType::kFloat64;
    case c10::kFloat:
      return DType::kFloat32;
    case c10::kHalf:
      return DType::kFloat16;
    case c10::kBFloat16:
      return DType::kBFloat16;
    case c10::kLong:
      return DType::kInt64;
    case c10::kInt:
      return DType::kInt32;
    case c10::kShort:
      return DType::kInt16;
    case c10::kChar:
      return DType::kInt8;
    case c10::kByte:
      return DType::kUInt8;
    case c10::kBool:
      return DType::kBool;
    case c10::kComplexFloat:
      return DType::kComplex64;
    case c10::kComplexDouble:
      return DType::kComplex128;
    default:
      return DType::kOther;
  }
}

c10::ScalarType ScalarTypeOf(py::handle dtype) {
  if (!THPDtype_Check(dtype.ptr())) throw py::type_error("a torch.dtype is needed");
  return reinterpret_cast<THPDtype*>(dtype.ptr())->scalar_type;
}

SymInt ToSymInt(py::handle value) {
  if (py::isinstance<PySymExpr>(value)) return py::cast<const PySymExpr&>(value).expr;
  return py::cast<int64_t>(value);
}

std::vector<SymInt> ToSymInts(py::handle sequence) {
  std::vector<SymInt> list;
  for (py::handle entry : py::cast<py::sequence>(sequence)) list.push_back(ToSymInt(entry));
  return list;
}

std::string MemoryFormatText(c10::MemoryFormat format) {
  switch (format) {
    case c10::MemoryFormat::Contiguous:
      return "contiguous_format";
    case c10::MemoryFormat::Preserve:
      return "preserve_format";
    case c10::MemoryFormat::ChannelsLast:
      return "channels_last";
    case c10::MemoryFormat::ChannelsLast3d:
      return "channels_last_3d";
    default:
      throw py::value_error("unknown memory format");
  }
}

// "torch.sparse_coo" without the module's name.
std::string LayoutText(py::handle layout) {
  const auto text = py::cast<std::string>(py::str(layout));
  return text.rfind("torch.", 0) == 0 ? text.substr(6) : text;
}

GraphArgumentValue ListArgument(const py::sequence& list) {
  bool any_value = false, any_float = false, any_int = false, all_bool = true, all_text = true;
  for (py::handle entry : list) {
    any_value |= entry.is_none() || py::isinstance<PyValue>(entry);
    any_float |= PyFloat_Check(entry.ptr());
    all_bool &= PyBool_Check(entry.ptr());
    all_text &= PyUnicode_Check(entry.ptr());
    any_int |= PyLong_Check(entry.ptr()) && !PyBool_Check(entry.ptr());
  }
  if (list.size() == 0) return std::vector<SymInt>{};
  if (any_value) {
    OptionalBufferList values;
    for (py::handle entry : list) {
      if (!entry.is_none() && !py::isinstance<PyValue>(entry)) {
        throw py::type_error("a list that mixes values and numbers: add the numbers with add_sym_int()");
      }
      values.push_back(entry.is_none() ? std::nullopt : std::optional<uint32_t>(py::cast<const PyValue&>(entry).index));
    }
    return values;
  }
  if (all_bool) return py::cast<std::vector<bool>>(list);
  if (all_text) return py::cast<std::vector<std::string>>(list);
  if (any_float) return py::cast<std::vector<double>>(list);
  return ToSymInts(list);
}

GraphArgumentValue ToArgument(py::handle value) {
  PyObject* object = value.ptr();
  if (value.is_none()) return std::monostate{};
  if (py::isinstance<PyValue>(value)) return GraphValueRef{py::cast<const PyValue&>(value).index};
  if (PyBool_Check(object)) return object == Py_True;
  if (PyLong_Check(object)) return py::cast<int64_t>(value);
  if (PyFloat_Check(object)) return PyFloat_AS_DOUBLE(object);
  if (PyUnicode_Check(object)) return py::cast<std::string>(value);
  if (PyList_Check(object) || PyTuple_Check(object)) return ListArgument(py::cast<py::sequence>(value));
  if (py::isinstance<PySymExpr>(value)) return SymExpression{py::cast<const PySymExpr&>(value).expr};
  if (PyComplex_Check(object))
    return std::complex<double>(PyComplex_RealAsDouble(object), PyComplex_ImagAsDouble(object));
  if (THPDtype_Check(object)) return FromScalarType(ScalarTypeOf(value));
  if (THPDevice_Check(object)) {
    return DeviceName{c10::DeviceTypeName(reinterpret_cast<THPDevice*>(object)->device.type(), /*lower_case=*/true)};
  }
  if (THPLayout_Check(object)) return LayoutName{LayoutText(value)};
  if (THPMemoryFormat_Check(object)) {
    return MemoryFormatName{MemoryFormatText(reinterpret_cast<THPMemoryFormat*>(object)->memory_format)};
  }
  throw py::type_error("an op's argument can't be a " +
                       py::cast<std::string>(py::type::handle_of(value).attr("__name__")));
}

std::optional<uint32_t> OptionalIndex(py::handle value) {
  if (value.is_none()) return std::nullopt;
  return py::cast<const PyValue&>(value).index;
}

PyValue AddTensor(GraphBuilder& graph, py::handle dtype, py::handle sizes, py::handle strides, py::handle offset,
                  py::handle device, std::string layout, std::string name) {
  GraphTensor tensor;
  tensor.dtype = FromScalarType(ScalarTypeOf(dtype));
  if (tensor.dtype == DType::kOther) {
    const auto text = py::cast<std::string>(py::str(dtype));
    tensor.other_dtype = text.rfind("torch.", 0) == 0 ? text.substr(6) : text;
  }
  tensor.sizes = ToSymInts(sizes);
  tensor.strides = ToSymInts(strides);
  tensor.storage_offset = ToSymInt(offset);
  const c10::Device where = THPDevice_Check(device.ptr()) ? reinterpret_cast<THPDevice*>(device.ptr())->device
                                                          : c10::Device(py::cast<std::string>(device));
  tensor.device_type = c10::DeviceTypeName(where.type(), /*lower_case=*/true);
  tensor.device_index = where.has_index() ? where.index() : 0;
  tensor.layout = layout == "strided" ? "" : std::move(layout);
  tensor.name = std::move(name);
  return {graph.AddTensor(std::move(tensor))};
}

void AddConstant(GraphBuilder& graph, const PyValue& value, py::handle tensor) {
  if (!THPVariable_Check(tensor.ptr())) throw py::type_error("a torch.Tensor is needed");
  const at::Tensor contiguous =
      THPVariable_Unpack(tensor.ptr()).detach().cpu().resolve_conj().resolve_neg().contiguous();
  std::string bytes(contiguous.nbytes(), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), contiguous.const_data_ptr(), bytes.size());
  graph.AddConstant(value.index, std::move(bytes));
}

void AddNode(GraphBuilder& graph, std::string op, const py::sequence& args, const py::sequence& results,
             bool results_are_list, const py::sequence& result_aliases, const py::sequence& mutated, bool uses_rng,
             std::string name, std::string diagnostics) {
  GraphNode node;
  node.op = std::move(op);
  for (py::handle entry : args) {
    const auto pair = py::cast<py::sequence>(entry);
    node.arguments.push_back({py::cast<std::string>(pair[0]), ToArgument(py::object(pair[1]))});
  }
  for (py::handle result : results) node.results.push_back(OptionalIndex(result));
  node.results_are_list = results_are_list;
  for (py::handle alias : result_aliases) node.result_aliases.push_back(OptionalIndex(alias));
  for (py::handle value : mutated) node.mutated.push_back(py::cast<const PyValue&>(value).index);
  node.uses_rng = uses_rng;
  node.name = std::move(name);
  node.diagnostics = std::move(diagnostics);
  graph.AddNode(std::move(node));
}

void AddOutput(GraphBuilder& graph, py::handle output) {
  if (output.is_none()) {
    graph.AddNoneOutput();
  } else if (py::isinstance<PyValue>(output)) {
    graph.AddOutput(py::cast<const PyValue&>(output).index);
  } else {
    graph.AddIntOutput(ToSymInt(output));
  }
}

GraphRole RoleFromName(const std::string& role) {
  if (role == "forward") return GraphRole::kForward;
  if (role == "backward") return GraphRole::kBackward;
  if (role == "joint") return GraphRole::kJoint;
  if (role == "inference") return GraphRole::kInference;
  throw py::value_error("unknown role " + role + "; known: forward, backward, joint, inference");
}

}  // namespace

void BindGraphBuilder(py::module_& module) {
  py::class_<PyValue>(module, "Value").def_readonly("index", &PyValue::index);
  py::class_<PySymExpr>(module, "SymExpr")
      .def(py::init([](std::string expr) { return PySymExpr{std::move(expr)}; }), py::arg("expr"))
      .def_readonly("expr", &PySymExpr::expr);
  py::class_<GraphBuilder>(module, "GraphBuilder")
      .def(py::init([](const std::string& role) { return GraphBuilder(RoleFromName(role)); }), py::arg("role"))
      .def("add_symbol", &GraphBuilder::AddSymbol, py::arg("name"), py::arg("hint"), py::arg("min"), py::arg("max"))
      .def("add_tensor", &AddTensor, py::arg("dtype"), py::arg("sizes"), py::arg("strides"),
           py::arg("storage_offset") = 0, py::arg("device") = "cpu", py::arg("layout") = "", py::arg("name") = "")
      .def(
          "add_sym_int",
          [](GraphBuilder& graph, py::handle value, std::string name) {
            return PyValue{graph.AddSymInt(ToSymInt(value), std::move(name))};
          },
          py::arg("value"), py::arg("name") = "")
      .def(
          "add_host_scalar",
          [](GraphBuilder& graph, std::string name) { return PyValue{graph.AddHostScalar(std::move(name))}; },
          py::arg("name") = "")
      .def(
          "add_input",
          [](GraphBuilder& graph, const PyValue& value, bool is_static) { graph.AddInput(value.index, is_static); },
          py::arg("value"), py::arg("static") = false)
      .def("add_constant", &AddConstant, py::arg("value"), py::arg("tensor"))
      .def("add_node", &AddNode, py::arg("op"), py::arg("args"), py::arg("results"),
           py::arg("results_are_list") = false, py::arg("result_aliases") = py::tuple(),
           py::arg("mutated") = py::tuple(), py::arg("uses_rng") = false, py::arg("name") = "",
           py::arg("diagnostics") = "")
      .def("add_output", &AddOutput, py::arg("output"))
      .def_property_readonly("num_nodes", &GraphBuilder::num_nodes)
      .def("serialize", [](const GraphBuilder& graph) { return py::bytes(graph.Serialize()); });
}

}  // namespace stepone::client
