#include "compiler/arguments_to_proto.h"

#include <complex>
#include <string>
#include <variant>

namespace stepone::compiler {
namespace {

// One overload per kind of ir::ArgumentValue: adding a kind there without a row here does not compile.
struct Writer {
  const std::vector<loops::BufferId>& operands;
  v1::Argument& to;

  void operator()(const ir::NoneArg&) {}
  void operator()(const ir::OperandRef& ref) { to.set_value(operands[ref.operand]); }
  void operator()(const ir::OperandList& list) {
    v1::ValueList& values = *to.mutable_value_list();
    for (int32_t operand : list.operands) {
      values.add_values(operand >= 0 ? operands[operand] : 0);
      values.add_present(operand >= 0);
    }
  }
  void operator()(int64_t value) { to.mutable_int_value()->set_value(value); }
  void operator()(double value) { to.set_float_value(value); }
  void operator()(bool value) { to.set_bool_value(value); }
  void operator()(const std::string& value) { to.set_string_value(value); }
  void operator()(const ir::Dims& values) {
    to.mutable_int_list();
    for (int64_t value : values) to.mutable_int_list()->add_values()->set_value(value);
  }
  void operator()(const std::vector<double>& values) {
    to.mutable_float_list()->mutable_values()->Assign(values.begin(), values.end());
  }
  void operator()(const std::vector<bool>& values) {
    to.mutable_bool_list();
    for (bool value : values) to.mutable_bool_list()->add_values(value);
  }
  void operator()(const std::vector<std::string>& values) {
    to.mutable_string_list()->mutable_values()->Assign(values.begin(), values.end());
  }
  void operator()(ir::DType dtype) { to.set_dtype(static_cast<v1::DType>(dtype)); }
  void operator()(const ir::DeviceArg& device) { to.mutable_device()->set_type(device.type); }
  void operator()(const ir::LayoutArg& layout) { to.set_layout(layout.name); }
  void operator()(const ir::MemoryFormatArg& format) { to.set_memory_format(format.name); }
  void operator()(const std::complex<double>& value) {
    to.mutable_complex_value()->set_real(value.real());
    to.mutable_complex_value()->set_imag(value.imag());
  }
};

}  // namespace

void ArgumentToProto(const ir::Argument& argument, const std::vector<loops::BufferId>& operands, v1::Argument& to) {
  to.set_name(argument.name);
  std::visit(Writer{operands, to}, argument.value);
}

}  // namespace stepone::compiler
