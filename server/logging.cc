#include "server/logging.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace stepone::server {
namespace {

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    google::protobuf::Struct line;
    auto& fields = *line.mutable_fields();
    fields["time"].set_string_value(absl::FormatTime(absl::FromChrono(message.time), absl::UTCTimeZone()));
    const auto level = spdlog::level::to_string_view(message.level);
    fields["level"].set_string_value(std::string(level.data(), level.size()));
    fields["message"].set_string_value(std::string(message.payload.data(), message.payload.size()));
    std::string text;
    // A map of strings always has a JSON form.
    [[maybe_unused]] const auto status = google::protobuf::util::MessageToJsonString(line, &text);
    text += '\n';
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

}  // namespace

void SetUpLogging(const std::string& level, const std::string& format) {
  auto logger = std::make_shared<spdlog::logger>("server", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(spdlog::level::from_str(level));
  logger->flush_on(spdlog::level::info);
  if (format == "json") {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %L %v");
  }
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace stepone::server
