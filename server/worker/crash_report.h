// Last words of a worker: where it was when it died.
#ifndef STEPONE_SERVER_WORKER_CRASH_REPORT_H_
#define STEPONE_SERVER_WORKER_CRASH_REPORT_H_

#include <string_view>

namespace stepone::server {

// Makes fatal signals write the current stage and a backtrace to stderr (which the front process keeps beside the
// request that it had sent), and failed allocations exit with kOutOfMemoryExitCode. Call once, at start.
void InstallCrashReport();

// Names the stage for the report; cut to a few dozen bytes. Thread-safe.
void SetCrashStage(std::string_view stage);

// A second stack for the calling thread, so that a stack overflow is reported too. Lives as long as the object.
class AlternateStack {
 public:
  AlternateStack();
  ~AlternateStack();
  AlternateStack(const AlternateStack&) = delete;

 private:
  void* memory_;
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_WORKER_CRASH_REPORT_H_
