// Remembers that the service can't be reached, so that hundreds of graphs do not each wait for the same dead endpoint.
#ifndef STEPONE_CLIENT_CIRCUIT_BREAKER_H_
#define STEPONE_CLIENT_CIRCUIT_BREAKER_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace stepone::client {

// CLOSED --failure--> OPEN --pause over, one caller is let through--> PROBING --success--> CLOSED
//                      ^----------------------failure (the pause doubles)---------'
// Thread-safe. Time is passed in.
class CircuitBreaker {
 public:
  CircuitBreaker(absl::Duration first_pause, absl::Duration longest_pause)
      : first_pause_(first_pause), longest_pause_(longest_pause), pause_(first_pause) {}

  // OK when the caller may try; it must report Success() or Failure() afterwards. kUnavailable while open, with the
  // last failure's message.
  absl::Status Allow(absl::Time now);
  void Success();
  void Failure(absl::Time now, const absl::Status& why);
  bool open(absl::Time now) const;

 private:
  enum class State { kClosed, kOpen, kProbing };

  const absl::Duration first_pause_;
  const absl::Duration longest_pause_;
  mutable absl::Mutex mutex_;
  absl::Duration pause_ ABSL_GUARDED_BY(mutex_);
  State state_ ABSL_GUARDED_BY(mutex_) = State::kClosed;
  // OPEN: until when. PROBING: when the probe counts as lost and another caller is let through.
  absl::Time until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  absl::Status last_failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_CIRCUIT_BREAKER_H_
