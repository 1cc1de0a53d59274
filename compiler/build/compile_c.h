// C text to an object file in memory, by clang as a library.
#ifndef STEPONE_COMPILER_BUILD_COMPILE_C_H_
#define STEPONE_COMPILER_BUILD_COMPILE_C_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace stepone::build {

// The -cc1 arguments for `isa`, without input and output. kUnimplemented when clang knows no such processor.
absl::StatusOr<std::vector<std::string>> CompilerArguments(std::string_view isa);

// An ELF relocatable object. kInternal carries clang's messages. Thread-safe.
absl::StatusOr<std::string> CompileC(std::string_view source, const std::vector<std::string>& arguments);

// "Debian clang version 19.1.7 ..."
std::string ClangVersion();

}  // namespace stepone::build

#endif  // STEPONE_COMPILER_BUILD_COMPILE_C_H_
