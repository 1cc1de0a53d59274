#include <string>
#include <vector>

#include "compiler/build/build_cpu.h"
#include "compiler/compile.h"
#include "compiler/source_revision.h"
#include "proto/host_target.h"
#include "proto/kernel_abi.h"
#include "proto/str_cat.h"

namespace stepone::compiler {

std::string Fingerprint() {
  static const auto* fingerprint =
      new std::string(StrCat("stepone ", kVersion, " abi ", STEPONE_KERNEL_ABI_VERSION, " source ", kSourceRevision,
                             " ", build::ToolchainFingerprint()));
  return *fingerprint;
}

std::vector<v1::Target> HostTargets() {
  std::vector<v1::Target> targets = {HostTarget()};
  for (const char* isa : {"x86-64-v4", "x86-64-v3", "x86-64-v2"}) {
    if (targets.front().isa() == isa) continue;
    absl::StatusOr<v1::Target> lower = LowerTarget(targets.front(), isa);
    if (lower.ok()) targets.push_back(*std::move(lower));
  }
  return targets;
}

}  // namespace stepone::compiler
