#include "server/bundle_check.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "proto/status.h"
#include "proto/str_cat.h"

namespace stepone::server {
namespace {

absl::Status Counts(std::string_view what, int64_t got, int64_t wanted) {
  if (got == wanted) return absl::OkStatus();
  return InvalidNode("", "convention-counts", StrCat("convention has ", got, " ", what, "; the plans take ", wanted));
}

absl::Status Positions(std::string_view field, const google::protobuf::RepeatedField<uint32_t>& positions,
                       int64_t limit) {
  if (positions.size() > limit) {
    return InvalidNode("", "convention-index", StrCat(field, " names ", positions.size(), " positions of ", limit));
  }
  for (uint32_t position : positions) {
    if (position >= limit) {
      return InvalidNode("", "convention-index", StrCat(field, " names position ", position, "; there are ", limit));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckOutput(const v1::OutputConvention& output, int number, int inputs) {
  const std::string where = StrCat("outputs[", number, "]");
  const bool is_alias = output.kind() == v1::OUTPUT_KIND_ALIAS_OF_INPUT || output.kind() == v1::OUTPUT_KIND_IS_INPUT;
  if (!v1::OutputKind_IsValid(output.kind()) || output.kind() == v1::OUTPUT_KIND_UNSPECIFIED) {
    return InvalidNode("", "convention-kind", StrCat(where, " is of unknown kind ", static_cast<int>(output.kind())));
  }
  if (is_alias != output.has_base()) {
    return InvalidNode("", "convention-index", StrCat(where, is_alias ? " is an alias of nothing" : " needs no base"));
  }
  if (is_alias && output.base() >= static_cast<uint32_t>(inputs)) {
    return InvalidNode("", "convention-index",
                       StrCat(where, ".base names position ", output.base(), "; there are ", inputs));
  }
  return absl::OkStatus();
}

absl::Status CheckTangent(const v1::TangentConvention& tangent, int number, const RequestLimits& limits) {
  static constexpr std::string_view kFormats[] = {"contiguous_format", "channels_last", "channels_last_3d",
                                                  "preserve_format"};
  const std::string where = StrCat("tangents[", number, "]");
  if (!tangent.memory_format().empty()) {
    if (std::find(std::begin(kFormats), std::end(kFormats), tangent.memory_format()) != std::end(kFormats)) {
      return absl::OkStatus();
    }
    return InvalidNode("", "convention-kind", StrCat(where, " has an unknown memory format"));
  }
  const auto negative = [](int64_t value) { return value < 0; };
  if (tangent.sizes_size() > limits.max_dimensions || tangent.sizes_size() != tangent.strides_size() ||
      std::any_of(tangent.sizes().begin(), tangent.sizes().end(), negative) ||
      std::any_of(tangent.strides().begin(), tangent.strides().end(), negative)) {
    return InvalidNode("", "convention-kind", StrCat(where, " has sizes and strides of no tensor"));
  }
  return absl::OkStatus();
}

// The part that only a convention with a backward has.
absl::Status CheckBackward(const v1::Convention& convention, int64_t returned, const v1::Manifest& backward,
                           const RequestLimits& limits) {
  const int64_t saved = convention.saved_outputs();
  const int64_t tangents = convention.tangents_size();
  if (convention.saved_without_version_check() > convention.saved_outputs()) {
    return InvalidNode("", "convention-counts", "saved_without_version_check exceeds saved_outputs");
  }
  for (const auto& [what, got, wanted] :
       {std::tuple<const char*, int64_t, int64_t>{"forward outputs", returned + saved, convention.forward_outputs()},
        {"gradients", convention.gradients_size(), convention.inputs_size()},
        {"gradients of the plan", backward.outputs_size(), convention.inputs_size()},
        {"saved values and tangents", saved + tangents, backward.inputs_size()}}) {
    if (absl::Status status = Counts(what, got, wanted); !status.ok()) return status;
  }
  for (int i = 0; i < convention.tangents_size(); ++i) {
    if (absl::Status status = CheckTangent(convention.tangents(i), i, limits); !status.ok()) return status;
  }
  for (const v1::GradientConvention& gradient : convention.gradients()) {
    if (absl::Status status = Positions("gradients.tangents", gradient.tangents(), tangents); !status.ok()) {
      return status;
    }
  }
  return Positions("donated_saved", convention.donated_saved(), saved);
}

// A convention without a backward says nothing of one.
absl::Status CheckNoBackward(const v1::Convention& convention, int64_t returned) {
  if (convention.tangents_size() + convention.gradients_size() + convention.detached_inputs_size() +
              convention.inputs_mutated_in_backward_size() + convention.donated_saved_size() >
          0 ||
      convention.has_donated() || convention.saved_outputs() > 0 || convention.saved_without_version_check() > 0) {
    return InvalidNode("", "convention-counts", "tangents, gradients or saved values without a backward");
  }
  return Counts("outputs", returned, convention.forward_outputs());
}

bool IsCopiedBack(const v1::InputConvention& input) { return input.mutates_data() && !input.mutation_in_graph(); }

}  // namespace

absl::Status CheckBundleRoles(const v1::Convention& convention,
                              const google::protobuf::RepeatedPtrField<v1::BundleGraph>& graphs) {
  const bool fits = convention.has_backward() ? graphs.size() == 2 && graphs[0].role() == v1::ROLE_FORWARD &&
                                                    graphs[1].role() == v1::ROLE_BACKWARD
                                              : graphs.size() == 1 && graphs[0].role() == v1::ROLE_INFERENCE;
  if (fits) return absl::OkStatus();
  return InvalidNode("", "bundle-roles",
                     convention.has_backward() ? "a bundle with a backward has the graphs forward and backward"
                                               : "a bundle without a backward has the graph inference alone");
}

absl::Status CheckConvention(const v1::Convention& convention, const std::vector<v1::Manifest>& manifests,
                             const RequestLimits& limits) {
  const v1::Manifest& first = manifests.front();
  const int inputs = convention.inputs_size();
  if (absl::Status status = Counts("inputs", inputs, first.inputs_size()); !status.ok()) return status;
  if (absl::Status status = Counts("forward outputs", convention.forward_outputs(), first.outputs_size());
      !status.ok()) {
    return status;
  }
  for (int i = 0; i < convention.outputs_size(); ++i) {
    if (absl::Status status = CheckOutput(convention.outputs(i), i, inputs); !status.ok()) return status;
  }
  for (const auto& [field, positions] : {std::pair<const char*, const google::protobuf::RepeatedField<uint32_t>&>{
                                             "static_inputs", convention.static_inputs()},
                                         {"detached_inputs", convention.detached_inputs()},
                                         {"inputs_mutated_in_backward", convention.inputs_mutated_in_backward()}}) {
    if (absl::Status status = Positions(field, positions, inputs); !status.ok()) return status;
  }
  const int64_t returned =
      std::count_if(convention.inputs().begin(), convention.inputs().end(), IsCopiedBack) + convention.outputs_size();
  if (!convention.has_backward()) return CheckNoBackward(convention, returned);
  return CheckBackward(convention, returned, manifests.back(), limits);
}

}  // namespace stepone::server
