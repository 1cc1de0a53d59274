#include "server/timer_queue.h"

#include <utility>

#include "absl/time/clock.h"

namespace stepone::server {

TimerQueue::TimerQueue() : thread_([this] { Run(); }) {}

TimerQueue::~TimerQueue() { Stop(); }

void TimerQueue::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Signal();
  }
  if (thread_.joinable()) thread_.join();
}

void TimerQueue::RunAt(absl::Time time, std::function<void()> function) {
  absl::MutexLock lock(&mu_);
  functions_.emplace(time, std::move(function));
  changed_.Signal();
}

void TimerQueue::Run() {
  absl::MutexLock lock(&mu_);
  while (!stopping_) {
    if (functions_.empty()) {
      changed_.Wait(&mu_);
    } else if (const absl::Time due = functions_.begin()->first; due > absl::Now()) {
      changed_.WaitWithDeadline(&mu_, due);
    } else {
      std::function<void()> function = std::move(functions_.begin()->second);
      functions_.erase(functions_.begin());
      mu_.Unlock();
      function();
      function = nullptr;
      mu_.Lock();
    }
  }
}

}  // namespace stepone::server
