// Sets up spdlog, which everything in the server logs through.
#ifndef STEPONE_SERVER_LOGGING_H_
#define STEPONE_SERVER_LOGGING_H_

#include <string>

namespace stepone::server {

// Lines go to stderr. `level`: debug, info, warning, error. `format`: "text", or "json" for one object per line with
// the members time, level and message. Call once, at start.
void SetUpLogging(const std::string& level, const std::string& format);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_LOGGING_H_
