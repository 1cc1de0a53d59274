#include "server/scheduling_class.h"

#include <dirent.h>
#include <sched.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace stepone::server {
namespace {

absl::Status SetThread(pid_t tid, SchedulingClass scheduling_class) {
  const sched_param param = {};
  const int policy = scheduling_class == SchedulingClass::kIdle ? SCHED_IDLE : SCHED_OTHER;
  if (sched_setscheduler(tid, policy, &param) != 0) return absl::ErrnoToStatus(errno, "sched_setscheduler");
  return absl::OkStatus();
}

}  // namespace

absl::Status SetCallingThread(SchedulingClass scheduling_class) { return SetThread(0, scheduling_class); }

absl::Status SetProcess(pid_t pid, SchedulingClass scheduling_class) {
  DIR* threads = opendir(absl::StrCat("/proc/", pid, "/task").c_str());
  if (threads == nullptr) return absl::ErrnoToStatus(errno, "cannot list threads");
  absl::Status result;
  while (const dirent* entry = readdir(threads)) {
    const int tid = std::atoi(entry->d_name);
    if (tid == 0) continue;
    absl::Status status = SetThread(tid, scheduling_class);
    // A thread that ended meanwhile is no failure.
    if (!status.ok() && !absl::IsNotFound(status) && errno != ESRCH) result.Update(status);
  }
  closedir(threads);
  return result;
}

}  // namespace stepone::server
