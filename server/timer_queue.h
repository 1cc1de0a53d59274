// Runs small functions at given times.
#ifndef STEPONE_SERVER_TIMER_QUEUE_H_
#define STEPONE_SERVER_TIMER_QUEUE_H_

#include <functional>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace stepone::server {

// One thread and a sorted list. Thread-safe. Functions run one after another on that thread and must not block.
class TimerQueue {
 public:
  TimerQueue();
  // Functions that are not due yet are dropped; one that is running is waited for.
  ~TimerQueue();

  void RunAt(absl::Time time, std::function<void()> function);
  // Drops what is not due yet, and all that comes from now on; waits for a function that is running.
  void Stop();

 private:
  void Run();

  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::multimap<absl::Time, std::function<void()>> functions_ ABSL_GUARDED_BY(mu_);
  absl::CondVar changed_;
  std::thread thread_;
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_TIMER_QUEUE_H_
