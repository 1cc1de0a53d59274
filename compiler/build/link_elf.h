// An object in memory to a shared library in memory, by lld as a library; no files.
#ifndef STEPONE_COMPILER_BUILD_LINK_ELF_H_
#define STEPONE_COMPILER_BUILD_LINK_ELF_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stepone::build {

// kInternal carries lld's messages. Thread-safe: lld's state is global, so links run one at a time.
absl::StatusOr<std::string> LinkShared(std::string_view object);

// What an artifact may be: no needed libraries, no undefined symbols (an error names them), `symbol` is a function and
// the only export. kInternal otherwise.
absl::Status CheckSelfContained(std::string_view library, std::string_view symbol);

// "LLD 19.1.7 ..." and the link flags.
std::string LinkerVersion();

}  // namespace stepone::build

#endif  // STEPONE_COMPILER_BUILD_LINK_ELF_H_
