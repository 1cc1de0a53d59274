#include "client/circuit_breaker.h"

#include <algorithm>

#include "proto/str_cat.h"

namespace stepone::client {

absl::Status CircuitBreaker::Allow(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (state_ == State::kClosed) return absl::OkStatus();
  if (now < until_) {
    return absl::UnavailableError(StrCat("not tried again for ", absl::FormatDuration(until_ - now),
                                         " because: ", ToStd(last_failure_.message())));
  }
  state_ = State::kProbing;
  until_ = now + pause_;
  return absl::OkStatus();
}

void CircuitBreaker::Success() {
  absl::MutexLock lock(&mutex_);
  state_ = State::kClosed;
  pause_ = first_pause_;
}

void CircuitBreaker::Failure(absl::Time now, const absl::Status& why) {
  absl::MutexLock lock(&mutex_);
  last_failure_ = why;
  // Requests that were under way when the first one failed report the same outage and do not lengthen the pause.
  if (state_ == State::kOpen) return;
  if (state_ == State::kProbing) pause_ = std::min(pause_ * 2, longest_pause_);
  state_ = State::kOpen;
  until_ = now + pause_;
}

bool CircuitBreaker::open(absl::Time now) const {
  absl::MutexLock lock(&mutex_);
  return state_ != State::kClosed && now < until_;
}

}  // namespace stepone::client
