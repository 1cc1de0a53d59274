// Where the events of one operation go.
#ifndef STEPONE_SERVER_EVENT_SINK_H_
#define STEPONE_SERVER_EVENT_SINK_H_

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::server {

// One reader of one operation. Both methods must return soon and never block on the reader; they are called one at a
// time.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void OnEvent(const v1::CompileEvent& event) = 0;
  // Last call. An error is the stream's status.
  virtual void OnEnd(const absl::Status& status) = 0;
};

// Calls sinks in the order in which events were pushed, whichever threads push and drain. Push under your own lock,
// drain without it. Thread-safe.
class EventOutbox {
 public:
  void Push(std::shared_ptr<EventSink> sink, v1::CompileEvent event);
  void PushEnd(std::shared_ptr<EventSink> sink, absl::Status status);
  // Delivers what was pushed; returns at once when another thread is delivering, which then goes on with it.
  void Drain();

 private:
  struct Delivery {
    std::shared_ptr<EventSink> sink;
    std::optional<v1::CompileEvent> event;  // absent: the end
    absl::Status status;
  };

  absl::Mutex mu_;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
  std::deque<Delivery> deliveries_ ABSL_GUARDED_BY(mu_);
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_EVENT_SINK_H_
