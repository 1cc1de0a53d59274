// Threads for work that may block: keys, disk reads, answers.
#ifndef STEPONE_SERVER_EXECUTOR_H_
#define STEPONE_SERVER_EXECUTOR_H_

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace stepone::server {

// A fixed number of threads over one bounded queue. Thread-safe.
class Executor {
 public:
  Executor(int threads, size_t max_waiting);
  // Runs what waits, then ends.
  ~Executor();

  // False when too much waits already; `function` is then not run.
  bool Run(std::function<void()> function);
  // Runs what waits and ends the threads; Run() refuses from now on.
  void Stop();

 private:
  void Work();

  const size_t max_waiting_;
  absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_;
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_EXECUTOR_H_
