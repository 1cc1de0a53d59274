#include "server/worker_pool.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/str_cat.h"
#include "server/scheduling_class.h"
#include "spdlog/spdlog.h"

namespace stepone::server {
namespace {

// How often an idle slot looks whether its worker still lives.
constexpr absl::Duration kIdleCheck = absl::Seconds(2);
// A worker reads its job at once; one that does not within this time hangs.
constexpr absl::Duration kWriteTimeout = absl::Seconds(30);

JobOutcome::Kind KindOf(WorkerExit::Kind exit) {
  switch (exit) {
    case WorkerExit::Kind::kExited:
      return JobOutcome::Kind::kBadOutput;
    case WorkerExit::Kind::kCrashed:
      return JobOutcome::Kind::kCrashed;
    case WorkerExit::Kind::kKilled:
      return JobOutcome::Kind::kKilled;
    case WorkerExit::Kind::kOutOfMemory:
      return JobOutcome::Kind::kOutOfMemory;
    case WorkerExit::Kind::kOutOfTime:
      return JobOutcome::Kind::kTimedOut;
  }
  return JobOutcome::Kind::kCrashed;
}

}  // namespace

JobControl::JobControl() : event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void JobControl::Cancel() {
  cancelled_ = true;
  Wake();
}

void JobControl::Raise() {
  raised_ = true;
  Wake();
}

void JobControl::Wake() {
  const uint64_t one = 1;
  // Can only fail when the counter is full, and then the reader is awake anyway.
  [[maybe_unused]] const ssize_t n = write(event_.get(), &one, sizeof one);
}

void JobControl::Acknowledge() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = read(event_.get(), &count, sizeof count);
}

WorkerPool::WorkerPool(Options options, JobSource* source) : options_(std::move(options)), source_(source) {}

WorkerPool::~WorkerPool() { Stop(); }

absl::StatusOr<v1::Hello> WorkerPool::Start() {
  {
    absl::MutexLock lock(&mu_);
    states_.assign(static_cast<size_t>(options_.workers), State::kStarting);
    running_.resize(states_.size());
  }
  for (int i = 0; i < options_.workers; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    slots_.back()->number = i;
    slots_.back()->backoff = options_.min_backoff;
  }
  for (auto& slot : slots_) slot->thread = std::thread([this, s = slot.get()] { RunSlot(*s); });

  absl::MutexLock lock(&mu_);
  const auto spoken = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return hello_.has_value(); };
  if (!mu_.AwaitWithTimeout(absl::Condition(&spoken), options_.hello_timeout)) {
    return absl::UnavailableError(absl::StrCat("no worker started: ", start_error_));
  }
  return *hello_;
}

void WorkerPool::Stop() {
  {
    absl::MutexLock lock(&mu_);
    stopping_ = true;
    for (auto& control : running_) {
      if (control != nullptr) control->Cancel();
    }
  }
  for (auto& slot : slots_) {
    if (slot->thread.joinable()) slot->thread.join();
  }
}

WorkerPool::Stats WorkerPool::stats() const {
  absl::MutexLock lock(&mu_);
  Stats stats = totals_;
  for (State state : states_) {
    switch (state) {
      case State::kStarting:
        ++stats.starting;
        break;
      case State::kIdle:
        ++stats.idle;
        break;
      case State::kBusy:
        ++stats.busy;
        break;
      case State::kDraining:
        ++stats.draining;
        break;
      case State::kDead:
        ++stats.dead;
        break;
    }
  }
  return stats;
}

void WorkerPool::RunSlot(Slot& slot) {
  while (!stopping()) {
    if (!EnsureStarted(slot)) continue;
    SetState(slot.number, State::kIdle);
    std::optional<Assignment> assignment = source_->NextJob(kIdleCheck);
    if (assignment.has_value()) {
      SetState(slot.number, State::kBusy);
      RunJob(slot, *assignment);
    }
  }
  slot.process.reset();
}

bool WorkerPool::EnsureStarted(Slot& slot) {
  if (slot.process != nullptr) {
    if (slot.process->Alive()) return true;
    spdlog::warn("worker {} of slot {} ended while idle: {}", slot.process->pid(), slot.number,
                 slot.process->Kill().text);
    slot.process.reset();
  }
  SetState(slot.number, State::kStarting);
  WorkerProcess::Options process_options = options_.process;
  absl::StrAppend(&process_options.log_path, slot.number, ".log");
  auto process = WorkerProcess::Spawn(process_options);
  absl::Status status = process.status();
  if (status.ok()) {
    slot.process = *std::move(process);
    slot.jobs_done = 0;
    status = ReadHello(slot);
  }
  absl::ReleasableMutexLock lock(&mu_);
  ++totals_.spawned;
  if (status.ok()) {
    slot.backoff = options_.min_backoff;
    return true;
  }
  start_error_ = std::string(status.message());
  states_[static_cast<size_t>(slot.number)] = State::kDead;
  lock.Release();
  slot.process.reset();
  spdlog::error("slot {}: {}; trying again in {} ms", slot.number, ToStd(status.message()),
                absl::ToInt64Milliseconds(slot.backoff));
  Pause(slot.backoff);
  slot.backoff = std::min(slot.backoff * 2, options_.max_backoff);
  return false;
}

absl::Status WorkerPool::ReadHello(Slot& slot) {
  v1::FromWorker message;
  absl::Status status = slot.process->channel().Read(message, absl::Now() + options_.hello_timeout);
  if (status.ok() && !message.has_hello()) status = absl::DataLossError("first message is no hello");
  if (!status.ok()) {
    const WorkerExit exit = slot.process->Kill();
    return absl::UnavailableError(
        absl::StrCat("worker did not start: ", status.message(), "; ", exit.text, "; ", slot.process->LogTail(1024)));
  }
  absl::MutexLock lock(&mu_);
  if (!hello_.has_value()) hello_ = message.hello();
  if (hello_->compiler_fingerprint() != message.hello().compiler_fingerprint()) {
    return absl::FailedPreconditionError(
        "worker has another compiler fingerprint than the first one had; was the "
        "installation changed under a running server? restart it");
  }
  return absl::OkStatus();
}

void WorkerPool::RunJob(Slot& slot, Assignment& assignment) {
  {
    absl::MutexLock lock(&mu_);
    running_[static_cast<size_t>(slot.number)] = assignment.control;
    if (stopping_) assignment.control->Cancel();
  }
  JobOutcome outcome = Exchange(slot, assignment);
  {
    absl::MutexLock lock(&mu_);
    running_[static_cast<size_t>(slot.number)].reset();
    if (outcome.kind == JobOutcome::Kind::kTimedOut) ++totals_.timed_out;
    if (outcome.kind == JobOutcome::Kind::kCrashed) ++totals_.crashed;
  }
  if (outcome.kind != JobOutcome::Kind::kResult && outcome.kind != JobOutcome::Kind::kCancelled) {
    spdlog::warn("slot {}: worker {}", slot.number, outcome.text);
  }
  if (slot.process == nullptr) {
    SetState(slot.number, State::kDead);
  } else {
    AfterJob(slot);
  }
  assignment.on_done(std::move(outcome));
}

JobOutcome WorkerPool::Exchange(Slot& slot, Assignment& assignment) {
  WorkerChannel& channel = slot.process->channel();
  v1::ToWorker to_worker;
  *to_worker.mutable_job() = std::move(assignment.job);
  absl::Status sent = channel.Write(to_worker, absl::Now() + kWriteTimeout);
  if (absl::IsInvalidArgument(sent)) {
    JobOutcome outcome;
    outcome.result.mutable_error()->set_code(static_cast<int>(sent.code()));
    outcome.result.mutable_error()->set_message(std::string(sent.message()));
    return outcome;
  }
  if (!sent.ok()) return Abort(slot, JobOutcome::Kind::kNotStarted, sent.message());
  to_worker.Clear();

  absl::Time deadline = assignment.deadline;
  bool cancel_sent = false;
  while (true) {
    v1::FromWorker message;
    absl::Status status = channel.Read(message, deadline, assignment.control->event_.get());
    if (absl::IsCancelled(status)) {
      if (auto outcome = Obey(slot, assignment, deadline, cancel_sent)) return *std::move(outcome);
    } else if (absl::IsDeadlineExceeded(status)) {
      return Abort(slot, cancel_sent ? JobOutcome::Kind::kCancelled : JobOutcome::Kind::kTimedOut,
                   "killed at the job's deadline");
    } else if (absl::IsUnavailable(status)) {
      return Abort(slot, cancel_sent ? JobOutcome::Kind::kCancelled : JobOutcome::Kind::kCrashed, "");
    } else if (!status.ok()) {
      return Abort(slot, JobOutcome::Kind::kBadOutput, status.message());
    } else if (message.has_result()) {
      JobOutcome outcome;
      outcome.result = std::move(*message.mutable_result());
      // A result that was finished before the worker heard of the cancellation is worth keeping.
      if (cancel_sent && outcome.result.has_error()) outcome.kind = JobOutcome::Kind::kCancelled;
      return outcome;
    } else if (message.has_stage()) {
      assignment.on_stage(message.stage());
    } else if (message.has_kernel_lookup()) {
      v1::ToWorker answer;
      *answer.mutable_kernel_answer() = assignment.on_lookup(message.kernel_lookup());
      // A failed write shows at the next read, with the reason.
      channel.Write(answer, absl::Now() + kWriteTimeout).IgnoreError();
    } else {
      return Abort(slot, JobOutcome::Kind::kBadOutput, "message of an unknown kind");
    }
  }
}

std::optional<JobOutcome> WorkerPool::Obey(Slot& slot, Assignment& assignment, absl::Time& deadline,
                                           bool& cancel_sent) {
  assignment.control->Acknowledge();
  if (assignment.control->cancelled_ && !cancel_sent) {
    if (stopping()) return Abort(slot, JobOutcome::Kind::kCancelled, "killed: the server stops");
    cancel_sent = true;
    deadline = std::min(deadline, absl::Now() + options_.cancel_grace);
    v1::ToWorker cancel;
    cancel.mutable_cancel();
    slot.process->channel().Write(cancel, deadline).IgnoreError();
  }
  if (assignment.control->raised_.exchange(false)) {
    absl::Status status = SetProcess(slot.process->pid(), SchedulingClass::kNormal);
    if (!status.ok())
      spdlog::debug("slot {}: worker stays in the idle class: {}", slot.number, ToStd(status.message()));
  }
  return std::nullopt;
}

JobOutcome WorkerPool::Abort(Slot& slot, JobOutcome::Kind kind, absl::string_view why) {
  JobOutcome outcome;
  outcome.kind = kind;
  const WorkerExit exit = slot.process->Kill();
  // A connection that just broke is explained by how the process ended.
  if (kind == JobOutcome::Kind::kCrashed) outcome.kind = KindOf(exit.kind);
  outcome.text = why.empty() ? exit.text : std::string(why);
  outcome.worker_log = slot.process->LogTail();
  slot.process.reset();
  return outcome;
}

void WorkerPool::AfterJob(Slot& slot) {
  ++slot.jobs_done;
  const size_t rss_bytes = slot.process->RssBytes();
  if (slot.jobs_done < options_.jobs_per_worker && rss_bytes <= options_.max_rss_bytes) return;
  SetState(slot.number, State::kDraining);
  spdlog::info("slot {}: worker {} is recycled after {} jobs with {} MiB", slot.number, slot.process->pid(),
               slot.jobs_done, rss_bytes >> 20);
  slot.process.reset();
  absl::MutexLock lock(&mu_);
  ++totals_.recycled;
}

void WorkerPool::SetState(int slot, State state) {
  absl::MutexLock lock(&mu_);
  states_[static_cast<size_t>(slot)] = state;
}

void WorkerPool::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mu_);
  mu_.AwaitWithTimeout(absl::Condition(&stopping_), duration);
}

bool WorkerPool::stopping() const {
  absl::MutexLock lock(&mu_);
  return stopping_;
}

}  // namespace stepone::server
