#include "compiler/codegen/cpu_codegen.h"

#include <utility>

#include "absl/status/status.h"
#include "compiler/codegen/kernel_emitter.h"
#include "compiler/codegen/prelude.h"
#include "compiler/codegen/schedule.h"
#include "proto/str_cat.h"

namespace stepone::codegen {
namespace {

// The same for every kernel: its name is no part of what it is.
constexpr char kSymbol[] = "stepone_kernel";

}  // namespace

absl::StatusOr<CpuSource> GenerateCpu(const loops::Kernel& kernel, const CpuTarget& target) {
  if (std::string error = loops::Verify(kernel); !error.empty()) {
    return absl::InternalError(StrCat("kernel ", kernel.name, ": ", error));
  }
  const Schedule schedule = MakeSchedule(kernel, target);
  absl::StatusOr<std::string> body = KernelEmitter(kernel, schedule).Run(kSymbol);
  if (!body.ok()) return body.status();
  CpuSource source;
  source.text = PreludeFor(*body, static_cast<int>(schedule.lanes)) + *body;
  source.symbol = kSymbol;
  source.units = schedule.units;
  source.grain = schedule.grain;
  return source;
}

}  // namespace stepone::codegen
