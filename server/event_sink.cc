#include "server/event_sink.h"

namespace stepone::server {

void EventOutbox::Push(std::shared_ptr<EventSink> sink, v1::CompileEvent event) {
  if (sink == nullptr) return;
  absl::MutexLock lock(&mu_);
  deliveries_.push_back({std::move(sink), std::move(event), absl::OkStatus()});
}

void EventOutbox::PushEnd(std::shared_ptr<EventSink> sink, absl::Status status) {
  if (sink == nullptr) return;
  absl::MutexLock lock(&mu_);
  deliveries_.push_back({std::move(sink), std::nullopt, std::move(status)});
}

void EventOutbox::Drain() {
  absl::ReleasableMutexLock lock(&mu_);
  if (draining_) return;
  draining_ = true;
  while (!deliveries_.empty()) {
    Delivery delivery = std::move(deliveries_.front());
    deliveries_.pop_front();
    mu_.Unlock();
    if (delivery.event.has_value()) {
      delivery.sink->OnEvent(*delivery.event);
    } else {
      delivery.sink->OnEnd(delivery.status);
    }
    delivery = {};
    mu_.Lock();
  }
  draining_ = false;
}

}  // namespace stepone::server
