// How much a worker may disturb the trainers on its host.
#ifndef STEPONE_SERVER_SCHEDULING_CLASS_H_
#define STEPONE_SERVER_SCHEDULING_CLASS_H_

#include <sys/types.h>

#include "absl/status/status.h"

namespace stepone::server {

enum class SchedulingClass {
  kNormal,  // somebody waits for the result
  kIdle,    // runs only on cores that nobody else wants (SCHED_IDLE)
};

// Sets the class of the calling thread; threads that it starts later inherit it. Entering kIdle always works, leaving
// it needs a privilege: start a new thread from one that never entered it instead.
absl::Status SetCallingThread(SchedulingClass scheduling_class);

// Sets the class of all threads of a process. kPermissionDenied: see above; some threads may have been changed.
absl::Status SetProcess(pid_t pid, SchedulingClass scheduling_class);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_SCHEDULING_CLASS_H_
