#include "server/executor.h"

#include <utility>

namespace stepone::server {

Executor::Executor(int threads, size_t max_waiting) : max_waiting_(max_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Executor::~Executor() { Stop(); }

bool Executor::Run(std::function<void()> function) {
  absl::MutexLock lock(&mu_);
  if (stopping_ || waiting_.size() >= max_waiting_) return false;
  waiting_.push_back(std::move(function));
  return true;
}

void Executor::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void Executor::Work() {
  const auto awake = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return stopping_ || !waiting_.empty(); };
  while (true) {
    std::function<void()> function;
    {
      absl::MutexLock lock(&mu_);
      mu_.Await(absl::Condition(&awake));
      if (waiting_.empty()) return;
      function = std::move(waiting_.front());
      waiting_.pop_front();
    }
    function();
  }
}

}  // namespace stepone::server
