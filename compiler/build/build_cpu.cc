#include "compiler/build/build_cpu.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "compiler/build/compile_c.h"
#include "compiler/build/link_elf.h"
#include "proto/str_cat.h"

namespace stepone::build {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class ClangBuilder final : public CpuBuilder {
 public:
  explicit ClangBuilder(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

  absl::StatusOr<std::string> Build(std::string_view source, std::string_view symbol, BuildTimings* timings) override {
    const Clock::time_point start = Clock::now();
    absl::StatusOr<std::string> object = CompileC(source, arguments_);
    if (!object.ok()) return object.status();
    const double compile_ms = MillisecondsSince(start);
    const Clock::time_point link_start = Clock::now();
    absl::StatusOr<std::string> library = LinkShared(*object);
    if (!library.ok()) return library.status();
    if (absl::Status status = CheckSelfContained(*library, symbol); !status.ok()) return status;
    if (timings != nullptr) *timings = {compile_ms, MillisecondsSince(link_start)};
    return library;
  }

  absl::Status WarmUp() override {
    // Touches the front end, vector code generation and the linker: what a first build would page in.
    static constexpr char kSource[] =
        "typedef float v __attribute__((ext_vector_type(8)));\n"
        "__attribute__((visibility(\"default\"))) int warm(float* p, long n) {\n"
        "  v s = 0;\n"
        "  for (long i = 0; i < n; i += 8) { v x; __builtin_memcpy(&x, p + i, sizeof x);\n"
        "    s += __builtin_elementwise_fma(x, x, (x > s) ? x : s) / __builtin_elementwise_sqrt(x); }\n"
        "  p[0] = s[0] + s[1];\n"
        "  return 0;\n"
        "}\n";
    return Build(kSource, "warm", nullptr).status();
  }

 private:
  const std::vector<std::string> arguments_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CpuBuilder>> CpuBuilder::Create(std::string_view isa) {
  absl::StatusOr<std::vector<std::string>> arguments = CompilerArguments(isa);
  if (!arguments.ok()) return arguments.status();
  return std::make_unique<ClangBuilder>(*std::move(arguments));
}

std::string ToolchainFingerprint() {
  // Any processor will do: what differs between targets is in the target's own part of a key.
  absl::StatusOr<std::vector<std::string>> arguments = CompilerArguments("x86-64-v3");
  return StrCat(ClangVersion(), " ", arguments.ok() ? absl::StrJoin(*arguments, " ") : "", "; ", LinkerVersion());
}

}  // namespace stepone::build
