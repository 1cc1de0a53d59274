#include "server/worker/sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/unique_fd.h"
#if STEPONE_HAVE_SECCOMP
#include <seccomp.h>
#endif

namespace stepone::server {
namespace {

absl::Status Limit(int resource, rlim_t value) {
  rlimit limit;
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return absl::ErrnoToStatus(errno, "getrlimit");
  if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < value) value = limit.rlim_max;
  limit.rlim_cur = limit.rlim_max = value;
  if (setrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return absl::ErrnoToStatus(errno, "setrlimit");
  return absl::OkStatus();
}

absl::Status LimitResources(const SandboxOptions& options) {
  absl::Status status = Limit(RLIMIT_CORE, 0);
  status.Update(Limit(RLIMIT_NOFILE, static_cast<rlim_t>(options.max_open_files)));
  if (options.memory_limit_bytes != 0) status.Update(Limit(RLIMIT_AS, options.memory_limit_bytes));
  return status;
}

#if STEPONE_HAVE_SECCOMP
absl::Status DenySystemCalls() {
  // No socket can be made, so none can be connected or bound; the inherited connection goes on working.
  static constexpr int kDenied[] = {
      SCMP_SYS(socket),
      SCMP_SYS(socketpair),
      SCMP_SYS(connect),
      SCMP_SYS(bind),
      SCMP_SYS(listen),
      SCMP_SYS(accept),
      SCMP_SYS(accept4),
      SCMP_SYS(ptrace),
      SCMP_SYS(process_vm_readv),
      SCMP_SYS(process_vm_writev),
      SCMP_SYS(mount),
      SCMP_SYS(umount2),
      SCMP_SYS(pivot_root),
      SCMP_SYS(chroot),
      SCMP_SYS(unshare),
      SCMP_SYS(setns),
      SCMP_SYS(bpf),
      SCMP_SYS(perf_event_open),
      SCMP_SYS(kexec_load),
      SCMP_SYS(init_module),
      SCMP_SYS(finit_module),
      SCMP_SYS(delete_module),
      SCMP_SYS(add_key),
      SCMP_SYS(request_key),
      SCMP_SYS(keyctl),
      SCMP_SYS(reboot),
      SCMP_SYS(swapon),
      SCMP_SYS(swapoff),
      SCMP_SYS(io_uring_setup),
      SCMP_SYS(userfaultfd),
      SCMP_SYS(pidfd_getfd),
  };
  scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (filter == nullptr) return absl::InternalError("seccomp_init failed");
  int error = 0;
  for (int call : kDenied) {
    if (error == 0) error = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0);
  }
  if (error == 0) error = seccomp_load(filter);
  seccomp_release(filter);
  return error == 0 ? absl::OkStatus() : absl::ErrnoToStatus(-error, "cannot load the seccomp filter");
}
#endif

absl::Status AllowWrites(int ruleset, const std::string& path, uint64_t access) {
  UniqueFd directory(open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!directory.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = access;
  rule.parent_fd = directory.get();
  if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("landlock rule for ", path));
  }
  return absl::OkStatus();
}

// True when the kernel has Landlock and it is on now.
absl::StatusOr<bool> RestrictWrites(const std::string& scratch_dir) {
  if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1) return false;
  landlock_ruleset_attr attributes = {};
  attributes.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                 LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                                 LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                 LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
  UniqueFd ruleset(static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0)));
  if (!ruleset.valid()) return absl::ErrnoToStatus(errno, "landlock_create_ruleset");
  absl::Status status = AllowWrites(ruleset.get(), "/dev/null", LANDLOCK_ACCESS_FS_WRITE_FILE);
  if (!scratch_dir.empty()) status.Update(AllowWrites(ruleset.get(), scratch_dir, attributes.handled_access_fs));
  if (!status.ok()) return status;
  if (syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
    return absl::ErrnoToStatus(errno, "landlock_restrict_self");
  return true;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> EnterSandbox(const SandboxOptions& options) {
  std::vector<std::string> in_force;
  if (absl::Status status = LimitResources(options); !status.ok()) return status;
  in_force.push_back("rlimits");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return absl::ErrnoToStatus(errno, "PR_SET_NO_NEW_PRIVS");
  in_force.push_back("no-new-privileges");
  absl::StatusOr<bool> landlock = RestrictWrites(options.scratch_dir);
  if (!landlock.ok()) return landlock.status();
  if (*landlock) in_force.push_back("landlock");
#if STEPONE_HAVE_SECCOMP
  if (absl::Status status = DenySystemCalls(); !status.ok()) return status;
  in_force.push_back("seccomp");
#endif
  return in_force;
}

void LimitCpuSeconds(int64_t seconds) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  rlimit limit = {};
  getrlimit(RLIMIT_CPU, &limit);
  const rlim_t wanted = static_cast<rlim_t>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + 1 + seconds);
  // Only the soft limit moves, so that the next job can move it again.
  limit.rlim_cur = limit.rlim_max == RLIM_INFINITY || wanted < limit.rlim_max ? wanted : limit.rlim_max;
  setrlimit(RLIMIT_CPU, &limit);
}

}  // namespace stepone::server
