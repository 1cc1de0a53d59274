#include "client/plan_from_manifest.h"

#include <utility>

#include "proto/str_cat.h"

namespace stepone::client {
namespace {

// REQUIRES: `dtype` came from the wire; an unknown number becomes kOther, which no memory buffer may have.
DType ToDType(v1::DType dtype) {
  const int number = static_cast<int>(dtype);
  return number >= 1 && number <= 13 ? static_cast<DType>(number) : DType::kOther;
}

absl::StatusOr<int64_t> ToInt(const v1::SymInt& value) {
  if (value.kind_case() == v1::SymInt::kExpr) {
    return absl::DataLossError(StrCat("plan: symbolic size \"", value.expr(), "\" is not specialised"));
  }
  return value.value();
}

Buffer ToBuffer(const v1::Buffer& from) {
  Buffer to;
  to.dtype = ToDType(from.dtype());
  to.sizes.assign(from.sizes().begin(), from.sizes().end());
  to.strides.assign(from.strides().begin(), from.strides().end());
  to.storage = static_cast<Storage>(from.storage());
  to.index = from.index();
  to.offset = from.offset();
  to.opaque = from.opaque();
  to.name = from.name();
  return to;
}

absl::StatusOr<ArgumentValue> ToValue(const v1::Argument& from) {
  switch (from.kind_case()) {
    case v1::Argument::KIND_NOT_SET:
      return ArgumentValue(std::monostate{});
    case v1::Argument::kValue:
      return ArgumentValue(BufferRef{from.value()});
    case v1::Argument::kValueList: {
      const v1::ValueList& list = from.value_list();
      if (list.present_size() != 0 && list.present_size() != list.values_size()) {
        return absl::DataLossError(StrCat("plan: argument ", from.name(), " has a list of unequal lengths"));
      }
      OptionalBufferList buffers;
      for (int i = 0; i < list.values_size(); ++i) {
        const bool present = list.present_size() == 0 || list.present(i);
        buffers.push_back(present ? std::optional<uint32_t>(list.values(i)) : std::nullopt);
      }
      return ArgumentValue(std::move(buffers));
    }
    case v1::Argument::kIntValue: {
      absl::StatusOr<int64_t> value = ToInt(from.int_value());
      if (!value.ok()) return value.status();
      return ArgumentValue(*value);
    }
    case v1::Argument::kFloatValue:
      return ArgumentValue(from.float_value());
    case v1::Argument::kBoolValue:
      return ArgumentValue(from.bool_value());
    case v1::Argument::kStringValue:
      return ArgumentValue(from.string_value());
    case v1::Argument::kIntList: {
      std::vector<int64_t> list;
      for (const v1::SymInt& entry : from.int_list().values()) {
        absl::StatusOr<int64_t> value = ToInt(entry);
        if (!value.ok()) return value.status();
        list.push_back(*value);
      }
      return ArgumentValue(std::move(list));
    }
    case v1::Argument::kFloatList:
      return ArgumentValue(std::vector<double>(from.float_list().values().begin(), from.float_list().values().end()));
    case v1::Argument::kBoolList:
      return ArgumentValue(std::vector<bool>(from.bool_list().values().begin(), from.bool_list().values().end()));
    case v1::Argument::kStringList:
      return ArgumentValue(
          std::vector<std::string>(from.string_list().values().begin(), from.string_list().values().end()));
    case v1::Argument::kDtype:
      return ArgumentValue(ToDType(from.dtype()));
    case v1::Argument::kDevice:
      return ArgumentValue(DeviceName{from.device().type()});
    case v1::Argument::kLayout:
      return ArgumentValue(LayoutName{from.layout()});
    case v1::Argument::kMemoryFormat:
      return ArgumentValue(MemoryFormatName{from.memory_format()});
    case v1::Argument::kComplexValue:
      return ArgumentValue(std::complex<double>(from.complex_value().real(), from.complex_value().imag()));
  }
  return absl::UnimplementedError(StrCat("plan: argument ", from.name(), " has an unknown kind"));
}

absl::StatusOr<Step> ToCall(const v1::CallStep& from) {
  CallStep to;
  to.op = from.op();
  for (const v1::Argument& argument : from.arguments()) {
    absl::StatusOr<ArgumentValue> value = ToValue(argument);
    if (!value.ok()) return value.status();
    to.arguments.push_back(PlanArgument{argument.name(), *std::move(value)});
  }
  for (uint32_t result : from.results()) {
    to.results.push_back(result == 0 ? std::nullopt : std::optional<uint32_t>(result - 1));
  }
  to.results_are_list = from.results_are_list();
  to.out_overload = from.out_overload();
  to.node = from.node();
  return Step(std::move(to));
}

absl::StatusOr<Step> ToStep(const v1::Step& from) {
  switch (from.kind_case()) {
    case v1::Step::kLaunch: {
      const v1::LaunchStep& launch = from.launch();
      return Step(LaunchStep{
          launch.kernel(), {launch.buffers().begin(), launch.buffers().end()}, launch.units(), launch.grain()});
    }
    case v1::Step::kCall:
      return ToCall(from.call());
    case v1::Step::kSeed:
      return Step(SeedStep{from.seed().buffer()});
    case v1::Step::kFree:
      return Step(FreeStep{{from.free().buffers().begin(), from.free().buffers().end()}});
    case v1::Step::kCopy:
      return Step(CopyStep{from.copy().source(), from.copy().destination()});
    case v1::Step::KIND_NOT_SET:
      break;
  }
  return absl::UnimplementedError("plan: a step of a kind that this client does not know");
}

absl::StatusOr<InputSpec> ToInput(const v1::InputSpec& from) {
  InputSpec to;
  to.unused = from.unused();
  switch (from.kind_case()) {
    case v1::InputSpec::kBuffer:
      to.buffer = from.buffer();
      return to;
    case v1::InputSpec::kIntValue:
      to.kind = InputSpec::Kind::kInt;
      to.int_value = from.int_value();
      return to;
    case v1::InputSpec::kHostScalar:
      to.kind = InputSpec::Kind::kHostScalar;
      to.buffer = from.host_buffer();
      return to;
    case v1::InputSpec::KIND_NOT_SET:
      if (!from.unused()) break;
      to.kind = InputSpec::Kind::kIgnored;
      return to;
  }
  return absl::UnimplementedError("plan: an input of a kind that this client does not know");
}

OutputSpec ToOutput(const v1::OutputSpec& from) {
  OutputSpec to;
  if (from.kind_case() == v1::OutputSpec::kBuffer) {
    to.kind = OutputSpec::Kind::kBuffer;
    to.buffer = from.buffer();
  } else if (from.kind_case() == v1::OutputSpec::kIntValue) {
    to.kind = OutputSpec::Kind::kInt;
    to.int_value = from.int_value();
  }
  return to;
}

}  // namespace

absl::StatusOr<Plan> PlanFromManifest(const v1::Manifest& manifest) {
  Plan plan;
  plan.arena_bytes = static_cast<int64_t>(manifest.arena_bytes());
  for (const v1::Kernel& kernel : manifest.kernels()) {
    plan.kernels.push_back(KernelInfo{
        kernel.name(), {kernel.source_ops().begin(), kernel.source_ops().end()}, kernel.bytes_moved(), kernel.flops()});
  }
  for (const v1::Buffer& buffer : manifest.buffers()) plan.buffers.push_back(ToBuffer(buffer));
  for (const v1::ConstantData& constant : manifest.constants()) plan.constants.push_back(constant.data());
  for (const v1::InputSpec& input : manifest.inputs()) {
    absl::StatusOr<InputSpec> spec = ToInput(input);
    if (!spec.ok()) return spec.status();
    plan.inputs.push_back(*spec);
  }
  for (const v1::Step& step : manifest.steps()) {
    absl::StatusOr<Step> converted = ToStep(step);
    if (!converted.ok()) return converted.status();
    plan.steps.push_back(*std::move(converted));
  }
  for (const v1::OutputSpec& output : manifest.outputs()) plan.outputs.push_back(ToOutput(output));
  if (absl::Status status = CheckPlan(plan); !status.ok()) return status;
  return plan;
}

}  // namespace stepone::client
