#include "cache/cache_key.h"

#include <algorithm>
#include <cstdint>
#include <unordered_set>

#include "absl/container/flat_hash_map.h"
#include "cache/canonical_form.h"
#include "proto/str_cat.h"

namespace stepone {
namespace {

using canonical::Tag;
using canonical::Writer;

// How one kind of symbolic integer is written: as a number or as an expression.
struct SymIntTags {
  Tag number;
  Tag expression;
};
constexpr SymIntTags kSizeTags{Tag::kSize, Tag::kSizeExpr};
constexpr SymIntTags kStrideTags{Tag::kStride, Tag::kStrideExpr};
constexpr SymIntTags kOffsetTags{Tag::kStorageOffset, Tag::kStorageOffsetExpr};
constexpr SymIntTags kSymIntTags{Tag::kSymInt, Tag::kSymIntExpr};
constexpr SymIntTags kIntegerTags{Tag::kInteger, Tag::kIntegerExpr};

bool IsCollective(std::string_view op) { return op.starts_with("_c10d_functional"); }
bool NamesProcessGroup(std::string_view argument) { return argument == "group_name" || argument == "tag"; }

bool IsNumberOrOperator(std::string_view token) {
  static constexpr std::string_view kOperators[] = {"+", "-", "*", "//", "%", "max", "min"};
  if (std::find(std::begin(kOperators), std::end(kOperators), token) != std::end(kOperators)) return true;
  if (token.starts_with('-')) token.remove_prefix(1);
  return !token.empty() && std::all_of(token.begin(), token.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class GraphWriter {
 public:
  GraphWriter(const v1::Graph& graph, Writer& out)
      : graph_(graph), out_(out), numbers_(static_cast<size_t>(graph.values_size()), kUnnumbered) {}

  void Write() {
    out_.Begin(Tag::kGraph);
    out_.Uint(Tag::kRole, static_cast<uint32_t>(graph_.role()));
    WriteSymbols();
    FindConstants();
    for (uint32_t input : graph_.inputs()) {
      out_.Begin(Tag::kInput);
      Define(input);
      out_.End();
    }
    WriteStaticInputs();
    for (const v1::Node& node : graph_.nodes()) WriteNode(node);
    for (const v1::Output& output : graph_.outputs()) WriteOutput(output);
    out_.End();
  }

 private:
  static constexpr uint32_t kUnnumbered = UINT32_MAX;

  void WriteSymbols() {
    for (int i = 0; i < graph_.symbols_size(); ++i) {
      const v1::Symbol& symbol = graph_.symbols(i);
      symbols_.try_emplace(symbol.name(), i);
      out_.Begin(Tag::kSymbol);
      out_.Int(Tag::kHint, symbol.hint());
      out_.Int(Tag::kMin, symbol.min());
      out_.Int(Tag::kMax, symbol.max());
      out_.End();
    }
  }

  // Constants are written where they are first used. One that can't be (a second one for the same value, or one for a
  // value that does not exist) is written here, so that a malformed graph never has the key of a good one.
  void FindConstants() {
    for (const v1::Constant& constant : graph_.constants()) {
      if (constant.value() < numbers_.size() && constants_.try_emplace(constant.value(), &constant).second) continue;
      out_.Begin(Tag::kStrayConstant);
      out_.Uint(Tag::kInvalidValue, constant.value());
      out_.DigestOf(Tag::kConstant, Sha256(constant.data()).Raw());
      out_.End();
    }
  }

  // A hint without order or repetition.
  void WriteStaticInputs() {
    std::vector<uint64_t> positions;
    for (uint32_t value : graph_.static_inputs()) {
      positions.push_back(value < numbers_.size() && numbers_[value] != kUnnumbered ? numbers_[value]
                                                                                    : kInvalidBase + value);
    }
    std::sort(positions.begin(), positions.end());
    positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
    for (uint64_t position : positions) out_.Uint(Tag::kStaticInput, position);
  }

  void WriteNode(const v1::Node& node) {
    out_.Begin(Tag::kNode);
    out_.Interned(Tag::kOp, node.op());
    const bool collective = IsCollective(node.op());
    for (const v1::Argument& argument : node.arguments()) {
      out_.Begin(Tag::kArgument);
      out_.Interned(Tag::kArgumentName, argument.name());
      if (collective && argument.kind_case() == v1::Argument::kStringValue && NamesProcessGroup(argument.name())) {
        const auto number = groups_.try_emplace(argument.string_value(), groups_.size()).first->second;
        out_.Uint(Tag::kProcessGroup, number);
      } else {
        WriteArgument(argument);
      }
      out_.End();
    }
    for (uint32_t result : node.results()) {
      out_.Begin(Tag::kResult);
      if (result == 0) {
        out_.Uint(Tag::kUnusedResult, 1);
      } else {
        Define(result - 1);
      }
      out_.End();
    }
    if (node.results_are_list()) out_.Uint(Tag::kResultsAreList, 1);
    for (uint32_t alias : node.result_aliases()) {
      out_.Uint(Tag::kResultAlias, alias == 0 ? 0 : uint64_t{1} + NumberOf(alias - 1));
    }
    for (uint32_t value : node.mutated_values()) out_.Uint(Tag::kMutated, NumberOf(value));
    if (node.uses_rng()) out_.Uint(Tag::kUsesRng, 1);
    out_.End();
  }

  void WriteArgument(const v1::Argument& argument) {
    switch (argument.kind_case()) {
      case v1::Argument::KIND_NOT_SET:
        return out_.Uint(Tag::kNone, 1);
      case v1::Argument::kValue:
        return Use(Tag::kValue, argument.value());
      case v1::Argument::kValueList:
        return WriteValueList(argument.value_list());
      case v1::Argument::kIntValue:
        return WriteSymInt(kIntegerTags, argument.int_value());
      case v1::Argument::kFloatValue:
        return out_.Float(Tag::kFloat, argument.float_value());
      case v1::Argument::kBoolValue:
        return out_.Uint(Tag::kBool, argument.bool_value());
      case v1::Argument::kStringValue:
        return out_.Interned(Tag::kString, argument.string_value());
      case v1::Argument::kIntList:
        out_.Begin(Tag::kIntList);
        for (const v1::SymInt& value : argument.int_list().values()) WriteSymInt(kIntegerTags, value);
        return out_.End();
      case v1::Argument::kFloatList:
        out_.Begin(Tag::kFloatList);
        for (double value : argument.float_list().values()) out_.Float(Tag::kFloat, value);
        return out_.End();
      case v1::Argument::kBoolList:
        out_.Begin(Tag::kBoolList);
        for (bool value : argument.bool_list().values()) out_.Uint(Tag::kBool, value);
        return out_.End();
      case v1::Argument::kStringList:
        out_.Begin(Tag::kStringList);
        for (const std::string& value : argument.string_list().values()) out_.Interned(Tag::kString, value);
        return out_.End();
      case v1::Argument::kDtype:
        return out_.Uint(Tag::kArgumentDtype, static_cast<uint32_t>(argument.dtype()));
      case v1::Argument::kDevice:
        return out_.Interned(Tag::kDevice, argument.device().type());
      case v1::Argument::kLayout:
        return out_.Text(Tag::kLayout, argument.layout());
      case v1::Argument::kMemoryFormat:
        return out_.Interned(Tag::kMemoryFormat, argument.memory_format());
      case v1::Argument::kComplexValue:
        out_.Begin(Tag::kComplex);
        out_.Float(Tag::kFloat, argument.complex_value().real());
        out_.Float(Tag::kImaginary, argument.complex_value().imag());
        return out_.End();
    }
  }

  void WriteValueList(const v1::ValueList& list) {
    out_.Begin(Tag::kValueList);
    for (int i = 0; i < list.values_size(); ++i) {
      if (i >= list.present_size()) {
        Use(Tag::kUnmarkedValue, list.values(i));
      } else if (list.present(i)) {
        Use(Tag::kValue, list.values(i));
      } else {
        out_.Uint(Tag::kNone, 1);
      }
    }
    if (list.present_size() > list.values_size()) {
      out_.Uint(Tag::kExtraMarks, static_cast<uint64_t>(list.present_size() - list.values_size()));
    }
    out_.End();
  }

  void WriteOutput(const v1::Output& output) {
    out_.Begin(Tag::kOutput);
    switch (output.kind_case()) {
      case v1::Output::kValue:
        Use(Tag::kValue, output.value());
        break;
      case v1::Output::kIntValue:
        WriteSymInt(kIntegerTags, output.int_value());
        break;
      case v1::Output::kNone:
      case v1::Output::KIND_NOT_SET:
        out_.Uint(Tag::kNone, 1);
        break;
    }
    out_.End();
  }

  // Writes the type and constant of a value that gets its number now, or the number that it has already.
  void Define(uint32_t value) {
    if (value >= numbers_.size()) return out_.Uint(Tag::kInvalidValue, value);
    if (numbers_[value] != kUnnumbered) return out_.Uint(Tag::kValue, numbers_[value]);
    numbers_[value] = next_number_++;
    WriteType(graph_.values(static_cast<int>(value)));
    const auto constant = constants_.find(value);
    if (constant != constants_.end()) out_.DigestOf(Tag::kConstant, Sha256(constant->second->data()).Raw());
  }

  // The number of a value, after its definition if this is the first that is heard of it.
  uint64_t NumberOf(uint32_t value) {
    if (value >= numbers_.size()) return kInvalidBase + value;
    if (numbers_[value] == kUnnumbered) {
      out_.Begin(Tag::kDefinition);
      Define(value);
      out_.End();
    }
    return numbers_[value];
  }

  void Use(Tag tag, uint32_t value) {
    if (value >= numbers_.size()) return out_.Uint(Tag::kInvalidValue, value);
    const uint64_t number = NumberOf(value);
    out_.Uint(tag, number);
  }

  void WriteType(const v1::Value& value) {
    switch (value.type_case()) {
      case v1::Value::kTensor:
        return WriteTensorType(value.tensor());
      case v1::Value::kSymInt:
        return WriteSymInt(kSymIntTags, value.sym_int());
      case v1::Value::kHostScalar:
        return out_.Uint(Tag::kHostScalar, 1);
      case v1::Value::TYPE_NOT_SET:
        return out_.Uint(Tag::kUntyped, 1);
    }
  }

  // What is left out reads as its default: offset 0, no other dtype, strided.
  void WriteTensorType(const v1::TensorType& type) {
    out_.Uint(Tag::kDtype, static_cast<uint32_t>(type.dtype()));
    for (const v1::SymInt& size : type.sizes()) WriteSymInt(kSizeTags, size);
    for (const v1::SymInt& stride : type.strides()) WriteSymInt(kStrideTags, stride);
    if (type.has_storage_offset() && !(type.storage_offset().expr().empty() && type.storage_offset().value() == 0)) {
      WriteSymInt(kOffsetTags, type.storage_offset());
    }
    out_.Interned(Tag::kDevice, type.device().type());
    if (!type.other_dtype().empty()) out_.Text(Tag::kOtherDtype, type.other_dtype());
    if (!type.layout().empty() && type.layout() != "strided") out_.Text(Tag::kLayout, type.layout());
  }

  void WriteSymInt(const SymIntTags& tags, const v1::SymInt& value) {
    if (value.kind_case() == v1::SymInt::kExpr) return out_.Text(tags.expression, Positional(value.expr()));
    out_.Int(tags.number, value.value());
  }

  // An expression with its symbols' positions for their names and single spaces: "(* s0 (+ s1 1))" -> "(* $0 (+ $1
  // 1))".
  // '?' marks a name that is no symbol of the graph, so that it can't pass for anything else.
  std::string Positional(std::string_view expression) const {
    std::string result;
    size_t i = 0;
    while (i < expression.size()) {
      const char c = expression[i];
      if (c == ' ' || c == '\t' || c == '\n') {
        ++i;
        continue;
      }
      if (!result.empty() && c != ')' && result.back() != '(') result.push_back(' ');
      if (c == '(' || c == ')') {
        result.push_back(c);
        ++i;
        continue;
      }
      const size_t end = std::min(expression.find_first_of(" \t\n()", i), expression.size());
      const std::string_view token = expression.substr(i, end - i);
      const auto symbol = symbols_.find(ToAbsl(token));
      if (symbol != symbols_.end()) {
        absl::StrAppend(&result, "$", symbol->second);
      } else {
        if (!IsNumberOrOperator(token)) result.push_back('?');
        result.append(token);
      }
      i = end;
    }
    return result;
  }

  // Above all numbers of values: how an index that names no value is written where only a number fits.
  static constexpr uint64_t kInvalidBase = uint64_t{1} << 32;

  const v1::Graph& graph_;
  Writer& out_;
  std::vector<uint32_t> numbers_;  // by index into Graph.values
  uint32_t next_number_ = 0;
  absl::flat_hash_map<absl::string_view, int> symbols_;
  absl::flat_hash_map<uint32_t, const v1::Constant*> constants_;
  absl::flat_hash_map<absl::string_view, uint64_t> groups_;
};

void WriteTarget(const v1::Target& target, Writer& out) {
  out.Begin(Tag::kTarget);
  out.Text(Tag::kDeviceType, target.device_type());
  out.Text(Tag::kIsa, target.isa());
  std::vector<std::string_view> features(target.features().begin(), target.features().end());
  std::sort(features.begin(), features.end());
  for (std::string_view feature : features) out.Text(Tag::kFeature, feature);
  out.Uint(Tag::kVectorBytes, target.vector_bytes());
  out.Uint(Tag::kL1dBytes, target.l1d_bytes());
  out.Uint(Tag::kL2Bytes, target.l2_bytes());
  out.End();
}

void WriteOptions(const v1::CodeOptions& options, Writer& out) {
  out.Begin(Tag::kOptions);
  out.Uint(Tag::kMode, static_cast<uint32_t>(options.mode()));
  out.Text(Tag::kBackend, options.backend());
  out.Uint(Tag::kDeterministic, options.deterministic());
  out.Uint(Tag::kFallbackRandom, options.fallback_random());
  out.Uint(Tag::kDisableFusion, options.disable_fusion());
  out.Text(Tag::kFrameworkVersion, options.framework_version());
  std::vector<std::pair<std::string_view, std::string_view>> passed(options.backend_options().begin(),
                                                                    options.backend_options().end());
  std::sort(passed.begin(), passed.end());
  for (const auto& [name, value] : passed) {
    out.Begin(Tag::kBackendOption);
    out.Text(Tag::kOptionName, name);
    out.Text(Tag::kOptionValue, value);
    out.End();
  }
  out.End();
}

void WriteCircumstances(const v1::Target& target, const v1::CodeOptions& options, std::string_view fingerprint,
                        std::string_view tenant, Writer& out) {
  out.Version(kKeyVersion);
  out.Text(Tag::kTenant, tenant);
  out.Text(Tag::kFingerprint, fingerprint);
  WriteTarget(target, out);
  WriteOptions(options, out);
}

KeyMaterial Finish(Writer out) {
  KeyMaterial material;
  material.canonical = std::move(out).Take();
  material.key = Sha256(material.canonical);
  return material;
}

}  // namespace

KeyMaterial GraphKey(const v1::Graph& graph, const v1::Target& target, const v1::CodeOptions& options,
                     std::string_view fingerprint, std::string_view tenant) {
  Writer out;
  WriteCircumstances(target, options, fingerprint, tenant, out);
  GraphWriter(graph, out).Write();
  return Finish(std::move(out));
}

KeyMaterial TraceKey(std::string_view trace, const v1::Target& target, const v1::CodeOptions& options,
                     std::string_view fingerprint, std::string_view tenant) {
  Writer out;
  WriteCircumstances(target, options, fingerprint, tenant, out);
  out.Begin(Tag::kTrace);
  for (size_t at = 0; at <= trace.size();) {
    const size_t end = std::min(trace.find('\n', at), trace.size());
    out.Text(Tag::kTraceLine, trace.substr(at, end - at));
    at = end + 1;
  }
  out.End();
  return Finish(std::move(out));
}

}  // namespace stepone
