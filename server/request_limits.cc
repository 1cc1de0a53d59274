#include "server/request_limits.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/digest.h"
#include "proto/status.h"
#include "proto/str_cat.h"
#include "server/graph_limits.h"

namespace stepone::server {
namespace {

// What requests of all kinds say.
struct Circumstances {
  size_t request_bytes;
  const v1::ClientContext& context;
  const v1::Target& target;
  const v1::CodeOptions& code_options;
  const google::protobuf::RepeatedPtrField<std::string>& known_objects;
};

absl::Status Invalid(absl::string_view rule, absl::string_view message) {
  return InvalidNode("", ToStd(rule), ToStd(message));
}

absl::Status Unknown(absl::string_view what, absl::string_view got, const std::vector<std::string>& known) {
  v1::ErrorDetail detail;
  detail.set_rule(absl::StrCat("unknown-", what));
  for (const std::string& value : known) detail.add_known_values(value);
  return WithDetail(
      absl::InvalidArgumentError(absl::StrCat("unknown ", what, " \"", absl::CHexEscape(got.substr(0, 64)),
                                              "\"; known: ", absl::StrJoin(known, ", "))),
      std::move(detail));
}

absl::Status CheckTarget(const v1::Target& target, const RequestLimits& limits, const Offer& offer) {
  const auto offered = std::find_if(offer.targets.begin(), offer.targets.end(), [&target](const v1::Target& t) {
    return t.device_type() == target.device_type() && t.isa() == target.isa();
  });
  if (offered == offer.targets.end()) {
    std::vector<std::string> known;
    for (const v1::Target& t : offer.targets) known.push_back(absl::StrCat(t.device_type(), "/", t.isa()));
    std::sort(known.begin(), known.end());
    known.erase(std::unique(known.begin(), known.end()), known.end());
    return Unknown("target", absl::StrCat(target.device_type(), "/", target.isa()), known);
  }
  if (target.features_size() > 256) return Invalid("name", "target has more than 256 features");
  for (const std::string& feature : target.features()) {
    if (absl::Status status = CheckName(feature, "target feature", limits); !status.ok()) return status;
  }
  if (!std::is_sorted(target.features().begin(), target.features().end())) {
    return Invalid("name", "target features are not sorted");
  }
  return absl::OkStatus();
}

absl::Status CheckBackend(const std::string& backend, const Offer& offer) {
  std::vector<std::string> known;
  for (const v1::BackendCapability& capability : offer.backends) {
    if (capability.name() == backend) {
      if (capability.available()) return absl::OkStatus();
      return absl::UnimplementedError(
          absl::StrCat("backend ", backend, " is not available here: ", capability.reason()));
    }
    known.push_back(capability.name());
  }
  return Unknown("backend", backend, known);
}

absl::Status CheckCodeOptions(const v1::CodeOptions& options, const RequestLimits& limits, const Offer& offer) {
  if (!v1::Mode_IsValid(options.mode()) || options.mode() == v1::MODE_UNSPECIFIED) {
    return Unknown("mode", absl::StrCat(static_cast<int>(options.mode())), KnownModes());
  }
  if (absl::Status status = CheckBackend(options.backend(), offer); !status.ok()) return status;
  if (absl::Status status =
          CheckName(absl::StrJoin(absl::StrSplit(options.framework_version(), '+'), "-"), "framework version", limits);
      !status.ok()) {
    return status;
  }
  if (options.backend_options_size() > limits.max_backend_options) {
    return Invalid("too-many-elements", absl::StrCat("more than ", limits.max_backend_options, " backend options"));
  }
  for (const auto& [name, value] : options.backend_options()) {
    if (absl::Status status = CheckName(name, "backend option", limits); !status.ok()) return status;
    if (value.size() > static_cast<size_t>(limits.max_text_bytes) || absl::StrContains(value, '\0')) {
      return Invalid("text-too-long", absl::StrCat("value of backend option ", name, " is too long or holds a NUL"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCircumstances(const Circumstances& asked, const RequestLimits& limits, const Offer& offer) {
  if (asked.request_bytes > limits.max_request_bytes) {
    return Invalid("request-too-large",
                   absl::StrCat("request of ", asked.request_bytes, " bytes; the limit is ", limits.max_request_bytes));
  }
  const v1::ClientContext& context = asked.context;
  for (const auto& [name, what] : {std::pair<const std::string&, const char*>(context.tenant(), "tenant"),
                                   {context.job(), "job"},
                                   {context.client_version(), "client version"}}) {
    if (absl::Status status = CheckName(name, what, limits); !status.ok()) return status;
  }
  for (const std::string& digest : asked.known_objects) {
    if (digest.size() != Digest::kSize) return Invalid("digest", "a known object's digest does not have 32 bytes");
  }
  if (absl::Status status = CheckCodeOptions(asked.code_options, limits, offer); !status.ok()) return status;
  return CheckTarget(asked.target, limits, offer);
}

}  // namespace

const std::vector<std::string>& KnownModes() {
  static const auto& modes =
      *new std::vector<std::string>{"default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"};
  return modes;
}

absl::Status CheckName(absl::string_view name, absl::string_view what, const RequestLimits& limits) {
  if (name.size() > static_cast<size_t>(limits.max_name_bytes)) {
    return Invalid("name", absl::StrCat(what, " has ", name.size(), " bytes; the limit is ", limits.max_name_bytes));
  }
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) ||
           (c != '\0' && absl::string_view("_.:/@-").find(static_cast<char>(c)) != absl::string_view::npos);
  });
  if (!plain || absl::StrContains(name, "..")) {
    return Invalid("name", absl::StrCat(what, " \"", absl::CHexEscape(name.substr(0, 64)),
                                        "\" holds characters that a name may not have"));
  }
  return absl::OkStatus();
}

absl::Status CheckRequest(const v1::CompileRequest& request, const RequestLimits& limits, const Offer& offer) {
  const Circumstances asked{request.ByteSizeLong(), request.context(), request.target(), request.code_options(),
                            request.known_objects()};
  if (absl::Status status = CheckCircumstances(asked, limits, offer); !status.ok()) return status;
  return CheckGraph(request.graph(), limits);
}

absl::Status CheckRequest(const v1::TraceRequest& request, const RequestLimits& limits, const Offer& offer) {
  const Circumstances asked{request.ByteSizeLong(), request.context(), request.target(), request.code_options(),
                            request.known_objects()};
  if (absl::Status status = CheckCircumstances(asked, limits, offer); !status.ok()) return status;
  if (request.trace().empty()) return Invalid("trace", "the trace is empty");
  return absl::OkStatus();
}

}  // namespace stepone::server
