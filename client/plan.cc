#include "client/plan.h"

#include <array>

#include "absl/strings/str_join.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

struct DTypeRow {
  int64_t item_size;
  std::string_view name;
};

// Indexed by the number of the dtype.
constexpr std::array<DTypeRow, 14> kDTypes = {{{0, "unspecified"},
                                               {8, "float64"},
                                               {4, "float32"},
                                               {2, "float16"},
                                               {2, "bfloat16"},
                                               {8, "int64"},
                                               {4, "int32"},
                                               {2, "int16"},
                                               {1, "int8"},
                                               {1, "uint8"},
                                               {1, "bool"},
                                               {8, "complex64"},
                                               {16, "complex128"},
                                               {0, "other"}}};

std::string_view StorageName(Storage storage) {
  switch (storage) {
    case Storage::kInput:
      return "input";
    case Storage::kConstant:
      return "constant";
    case Storage::kArena:
      return "arena";
    case Storage::kOutput:
      return "output";
    case Storage::kExtern:
      return "extern";
    case Storage::kView:
      return "view";
  }
  return "?";
}

std::string DescribeBuffer(const Plan& plan, uint32_t index) {
  const Buffer& buffer = plan.buffers[index];
  std::string text = StrCat("%", index);
  if (!buffer.name.empty()) text += StrCat(":", buffer.name);
  if (buffer.opaque) return StrCat(text, " opaque ", StorageName(buffer.storage));
  text += StrCat(" ", DTypeName(buffer.dtype), "[", absl::StrJoin(buffer.sizes, ","), "]{",
                 absl::StrJoin(buffer.strides, ","), "} ", StorageName(buffer.storage));
  if (buffer.storage == Storage::kArena) text += StrCat("+", buffer.offset);
  if (buffer.storage == Storage::kView) text += StrCat(" of %", buffer.index, "+", buffer.offset);
  return text;
}

struct ArgumentPrinter {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(BufferRef ref) const { return StrCat("%", ref.buffer); }
  std::string operator()(const OptionalBufferList& list) const {
    std::vector<std::string> parts;
    for (const auto& entry : list) parts.push_back(entry ? StrCat("%", *entry) : "None");
    return StrCat("[", absl::StrJoin(parts, ", "), "]");
  }
  std::string operator()(int64_t value) const { return StrCat(value); }
  std::string operator()(double value) const { return StrCat(value); }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(const std::string& value) const { return StrCat("\"", value, "\""); }
  std::string operator()(const std::vector<int64_t>& list) const { return StrCat("[", absl::StrJoin(list, ", "), "]"); }
  std::string operator()(const std::vector<double>& list) const { return StrCat("[", absl::StrJoin(list, ", "), "]"); }
  std::string operator()(const std::vector<bool>& list) const {
    std::vector<std::string> parts;
    for (bool value : list) parts.push_back((*this)(value));
    return StrCat("[", absl::StrJoin(parts, ", "), "]");
  }
  std::string operator()(const std::vector<std::string>& list) const {
    return StrCat("[", absl::StrJoin(list, ", "), "]");
  }
  std::string operator()(DType dtype) const { return std::string(DTypeName(dtype)); }
  std::string operator()(const DeviceName& device) const { return device.type; }
  std::string operator()(const LayoutName& layout) const { return layout.name; }
  std::string operator()(const MemoryFormatName& format) const { return format.name; }
  std::string operator()(const std::complex<double>& value) const {
    return StrCat("(", value.real(), ",", value.imag(), ")");
  }
};

struct StepPrinter {
  const Plan& plan;

  std::string operator()(const LaunchStep& step) const {
    return StrCat("launch ", plan.kernels[step.kernel].name, " (%", absl::StrJoin(step.buffers, ", %"), ") units ",
                  step.units, " grain ", step.grain);
  }
  std::string operator()(const CallStep& step) const {
    std::vector<std::string> arguments, results;
    for (const PlanArgument& argument : step.arguments) {
      arguments.push_back(StrCat(argument.name, "=", std::visit(ArgumentPrinter{}, argument.value)));
    }
    for (const auto& result : step.results) {
      results.push_back(result ? DescribeBuffer(plan, *result) : "_");
    }
    const std::string out = step.out_overload.empty() ? "" : StrCat(" into ", step.out_overload);
    return StrCat("call ", step.op, out, "(", absl::StrJoin(arguments, ", "), ") -> ", absl::StrJoin(results, "; "));
  }
  std::string operator()(const SeedStep& step) const { return StrCat("seed %", step.buffer); }
  std::string operator()(const FreeStep& step) const { return StrCat("free %", absl::StrJoin(step.buffers, ", %")); }
  std::string operator()(const CopyStep& step) const {
    return StrCat("copy %", step.source, " -> %", step.destination);
  }
};

}  // namespace

int64_t ItemSize(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].item_size; }

std::string_view DTypeName(DType dtype) { return kDTypes[static_cast<size_t>(dtype)].name; }

int64_t SpanElements(const Buffer& buffer) {
  int64_t last = 0;
  for (size_t d = 0; d < buffer.sizes.size(); ++d) {
    if (buffer.sizes[d] == 0) return 0;
    last += (buffer.sizes[d] - 1) * buffer.strides[d];
  }
  return last + 1;
}

std::string DescribePlan(const Plan& plan) {
  std::string text;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const InputSpec& input = plan.inputs[i];
    const std::string what = input.kind == InputSpec::Kind::kInt ? StrCat("int ", input.int_value)
                             : input.unused || input.kind == InputSpec::Kind::kIgnored
                                 ? "unused"
                                 : DescribeBuffer(plan, input.buffer);
    text += StrCat("input ", i, " ", what, "\n");
  }
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    text += StrCat("step ", i, " ", std::visit(StepPrinter{plan}, plan.steps[i]), "\n");
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const OutputSpec& output = plan.outputs[i];
    const std::string what = output.kind == OutputSpec::Kind::kInt      ? StrCat("int ", output.int_value)
                             : output.kind == OutputSpec::Kind::kBuffer ? DescribeBuffer(plan, output.buffer)
                                                                        : "None";
    text += StrCat("output ", i, " ", what, "\n");
  }
  return text + StrCat("arena ", plan.arena_bytes, " bytes\n");
}

}  // namespace stepone::client
