// Server streams that write one message at a time, whoever produces them and however slowly they are read.
#ifndef STEPONE_SERVER_STREAM_REACTOR_H_
#define STEPONE_SERVER_STREAM_REACTOR_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/grpc_status.h"
#include "server/timer_queue.h"

namespace stepone::server {

// Owns itself until gRPC is done with it (keep only weak or shared pointers). Thread-safe.
template <typename Message>
class StreamReactor : public grpc::ServerWriteReactor<Message>,
                      public std::enable_shared_from_this<StreamReactor<Message>> {
 public:
  explicit StreamReactor(grpc::CallbackServerContext* context) : context_(context) {}

  // Takes hold of itself and watches that the client goes on reading. Call once, right after construction.
  // `on_done` runs when the call is over, `on_cancel` when the client went away before.
  void Start(TimerQueue* timers, absl::Duration stall, std::function<void()> on_done, std::function<void()> on_cancel) {
    self_ = this->shared_from_this();
    on_done_ = std::move(on_done);
    on_cancel_ = std::move(on_cancel);
    Watch(timers, stall, this->weak_from_this());
  }

  // Queues a message. `replaces_last`: a message that waits and was queued with the same flag is dropped for this one,
  // so that a slow reader sees the latest progress and memory does not grow.
  void Write(Message message, bool replaces_last) {
    {
      absl::MutexLock lock(&mu_);
      if (end_.has_value()) return;
      if (replaces_last && !waiting_.empty() && waiting_.back().second) waiting_.pop_back();
      waiting_.emplace_back(std::move(message), replaces_last);
    }
    Advance();
  }

  // Asks `more` for the next message whenever one has been written; it returns nothing at the end.
  void Pull(std::function<std::optional<Message>()> more) {
    {
      absl::MutexLock lock(&mu_);
      more_ = std::move(more);
    }
    Advance();
  }

  // Ends the stream once everything queued has been written.
  void End(const absl::Status& status) {
    {
      absl::MutexLock lock(&mu_);
      if (end_.has_value()) return;
      end_ = status;
    }
    Advance();
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mu_);
      writing_ = false;
      write_began_ = absl::InfiniteFuture();
      if (!ok) {
        waiting_.clear();
        more_ = nullptr;
        if (!end_.has_value()) end_ = absl::CancelledError("stream broke");
      }
    }
    Advance();
  }

  void OnCancel() override {
    if (on_cancel_ != nullptr) on_cancel_();
    End(absl::CancelledError("client went away"));
  }

  void OnDone() override {
    {
      absl::MutexLock lock(&mu_);
      context_ = nullptr;
    }
    if (on_done_ != nullptr) on_done_();
    self_.reset();
  }

 private:
  enum class Step { kNone, kWrite, kFinish };

  // Begins the next write, or finishes. At most one of them is under way, so both may happen outside of the lock.
  void Advance() {
    grpc::Status status;
    Step step;
    {
      absl::MutexLock lock(&mu_);
      step = NextStep(status);
    }
    if (step == Step::kWrite) this->StartWrite(&current_);
    if (step == Step::kFinish) this->Finish(status);
  }

  Step NextStep(grpc::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || finished_) return Step::kNone;
    if (waiting_.empty() && more_ != nullptr) {
      if (std::optional<Message> next = more_(); next.has_value()) {
        waiting_.emplace_back(*std::move(next), false);
      } else {
        more_ = nullptr;
        if (!end_.has_value()) end_ = absl::OkStatus();
      }
    }
    if (!waiting_.empty()) {
      current_ = std::move(waiting_.front().first);
      waiting_.pop_front();
      writing_ = true;
      write_began_ = absl::Now();
      return Step::kWrite;
    }
    if (!end_.has_value()) return Step::kNone;
    finished_ = true;
    status = ToGrpcStatus(*end_, *context_);
    return Step::kFinish;
  }

  static void Watch(TimerQueue* timers, absl::Duration stall, std::weak_ptr<StreamReactor> weak) {
    timers->RunAt(absl::Now() + stall / 2, [timers, stall, weak] {
      std::shared_ptr<StreamReactor> stream = weak.lock();
      if (stream == nullptr) return;
      {
        absl::MutexLock lock(&stream->mu_);
        if (stream->context_ == nullptr) return;
        if (stream->write_began_ + stall < absl::Now()) return stream->context_->TryCancel();
      }
      Watch(timers, stall, weak);
    });
  }

  std::shared_ptr<StreamReactor> self_;
  std::function<void()> on_done_, on_cancel_;

  absl::Mutex mu_;
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mu_);  // null once the call is over
  std::deque<std::pair<Message, bool>> waiting_ ABSL_GUARDED_BY(mu_);
  std::function<std::optional<Message>()> more_ ABSL_GUARDED_BY(mu_);
  Message current_;  // being written
  bool writing_ ABSL_GUARDED_BY(mu_) = false;
  bool finished_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time write_began_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_STREAM_REACTOR_H_
