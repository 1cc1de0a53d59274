#include "server/dispatcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "proto/status.h"
#include "proto/str_cat.h"
#include "spdlog/spdlog.h"

namespace stepone::server {
namespace {

constexpr int kMaxFalseStarts = 10;
constexpr int kIdlePatience = 20;
constexpr size_t kMaxToldPositions = 100;

const char* ResultLabel(const JobOutcome& outcome) {
  switch (outcome.kind) {
    case JobOutcome::Kind::kResult:
      return outcome.result.has_error() ? "error" : "ok";
    case JobOutcome::Kind::kCrashed:
      return "crashed";
    case JobOutcome::Kind::kKilled:
      return "killed";
    case JobOutcome::Kind::kOutOfMemory:
      return "out_of_memory";
    case JobOutcome::Kind::kTimedOut:
      return "timed_out";
    case JobOutcome::Kind::kBadOutput:
      return "bad_output";
    case JobOutcome::Kind::kCancelled:
      return "cancelled";
    case JobOutcome::Kind::kNotStarted:
      return "not_started";
  }
  return "other";
}

absl::Status RetryLater(absl::Status status, absl::Duration after) {
  v1::ErrorDetail detail;
  detail.set_retry_after_ms(absl::ToInt64Milliseconds(after));
  return WithDetail(std::move(status), std::move(detail));
}

bool IsDeterministic(absl::StatusCode code) {
  return code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kUnimplemented ||
         code == absl::StatusCode::kInternal;
}

}  // namespace

Dispatcher::Dispatcher(Options options, ReproducerStore* reproducers, TimerQueue* timers, Metrics* metrics)
    : options_(std::move(options)),
      reproducers_(reproducers),
      timers_(timers),
      metrics_(metrics),
      queue_(options_.queue) {}

absl::Duration Dispatcher::RetryAfter() const {
  const auto waiting = static_cast<int64_t>(queue_.size()) + 1;
  return std::clamp(mean_compile_ * waiting / std::max(options_.workers, 1), absl::Milliseconds(200),
                    absl::Seconds(30));
}

absl::StatusOr<uint64_t> Dispatcher::Submit(CompileTask task) {
  auto job = std::make_shared<Job>();
  job->submitted = absl::Now();
  AdmissionQueue::Entry& entry = job->entry;
  entry.tenant = task.request->context().tenant();
  entry.role = task.request->graph().role();
  entry.blocking = task.blocking;
  entry.priority = task.request->run_options().priority();
  entry.deadline = task.queue_deadline;
  job->task = std::move(task);
  uint64_t id = 0;
  {
    absl::MutexLock lock(&mu_);
    if (closed_) return RetryLater(absl::UnavailableError("server is going down"), absl::Seconds(1));
    id = entry.id = next_id_++;
    if (absl::Status status = queue_.Push(entry); !status.ok()) return RetryLater(std::move(status), RetryAfter());
    jobs_[id] = job;
  }
  if (entry.deadline != absl::InfiniteFuture()) timers_->RunAt(entry.deadline, [this] { ExpireWaiting(); });
  TellPositions();
  return id;
}

void Dispatcher::Cancel(uint64_t id) {
  JobPtr waiting;
  {
    absl::MutexLock lock(&mu_);
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) return;
    found->second->cancelled = true;
    if (queue_.Remove(id)) {
      waiting = found->second;
      jobs_.erase(found);
    } else if (found->second->control != nullptr) {
      found->second->control->Cancel();
    }
  }
  if (waiting != nullptr) FailWaiting({waiting}, absl::CancelledError("nobody waits for the compile any more"));
}

void Dispatcher::Raise(uint64_t id) {
  absl::MutexLock lock(&mu_);
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || found->second->entry.blocking) return;
  found->second->entry.blocking = true;
  if (!queue_.Raise(id) && found->second->control != nullptr) found->second->control->Raise();
}

void Dispatcher::Close() {
  std::vector<JobPtr> waiting;
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
    while (std::optional<AdmissionQueue::Entry> entry = queue_.Pop()) {
      queue_.Finished(entry->tenant);
      waiting.push_back(jobs_[entry->id]);
      jobs_.erase(entry->id);
    }
  }
  FailWaiting(waiting, RetryLater(absl::UnavailableError("server is going down"), absl::Seconds(1)));
}

size_t Dispatcher::queue_length() const {
  absl::MutexLock lock(&mu_);
  return queue_.size();
}

size_t Dispatcher::running() const {
  absl::MutexLock lock(&mu_);
  return running_;
}

absl::Duration Dispatcher::StalledFor(absl::Time now) const {
  absl::MutexLock lock(&mu_);
  if (queue_.size() == 0 || running_ >= static_cast<size_t>(options_.workers)) return absl::ZeroDuration();
  absl::Time oldest = absl::InfiniteFuture();
  for (uint64_t id : queue_.Order()) oldest = std::min(oldest, jobs_.at(id)->submitted);
  return std::max(now - std::max(oldest, progress_), absl::ZeroDuration());
}

void Dispatcher::ExpireWaiting() {
  std::vector<JobPtr> expired;
  {
    absl::MutexLock lock(&mu_);
    for (uint64_t id : queue_.TakeExpired(absl::Now())) {
      expired.push_back(jobs_[id]);
      jobs_.erase(id);
    }
  }
  FailWaiting(expired, absl::DeadlineExceededError("no worker became free in time"));
}

void Dispatcher::FailWaiting(const std::vector<JobPtr>& jobs, const absl::Status& status) {
  for (const JobPtr& job : jobs) {
    CompileOutcome outcome;
    outcome.status = status;
    outcome.queued = absl::Now() - job->submitted;
    job->task.on_done(std::move(outcome));
  }
}

void Dispatcher::TellPositions() {
  std::vector<std::pair<JobPtr, absl::Duration>> told;
  {
    absl::MutexLock lock(&mu_);
    const int workers = std::max(options_.workers, 1);
    for (uint64_t id : queue_.Order()) {
      if (told.size() == kMaxToldPositions) break;
      const auto rounds = static_cast<int64_t>(told.size()) / workers + 1;
      told.emplace_back(jobs_[id], mean_compile_ * rounds);
    }
  }
  for (size_t i = 0; i < told.size(); ++i) told[i].first->task.on_queued(static_cast<int>(i) + 1, told[i].second);
}

std::optional<Assignment> Dispatcher::NextJob(absl::Duration timeout) {
  JobPtr job;
  size_t running = 0;
  bool blocking = false;
  {
    absl::MutexLock lock(&mu_);
    const auto there_is_one = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return closed_ || queue_.size() > 0; };
    mu_.AwaitWithTimeout(absl::Condition(&there_is_one), timeout);
    std::optional<AdmissionQueue::Entry> entry = queue_.Pop();
    if (!entry.has_value()) return std::nullopt;
    job = jobs_[entry->id];
    job->control = std::make_shared<JobControl>();
    job->started = progress_ = absl::Now();
    job->queued += job->started - job->submitted;
    blocking = entry->blocking;
    ++running_;
    running = running_ + queue_.size();
  }
  metrics_->compiles_begun.Increment();
  metrics_->queue_seconds.Observe(absl::ToDoubleSeconds(job->started - job->submitted));
  TellPositions();
  return MakeAssignment(job, blocking, running);
}

Assignment Dispatcher::MakeAssignment(const JobPtr& job, bool blocking, size_t running) {
  const v1::CompileRequest& request = *job->task.request;
  Assignment assignment;
  // In the idle class a healthy job may stand still for long while a trainer uses all cores; what it computes is
  // bounded by the worker's limit of processor time.
  assignment.deadline = absl::Now() + options_.job_timeout * (blocking ? 1 : kIdlePatience);
  assignment.control = job->control;
  v1::Job& message = assignment.job;
  message.set_graph_key(job->task.key.Raw());
  *message.mutable_graph() = request.graph();
  *message.mutable_target() = request.target();
  *message.mutable_code_options() = request.code_options();
  message.set_deadline_ms(absl::ToInt64Milliseconds(options_.job_timeout));
  message.set_blocking_step(blocking);
  message.set_reproducer_dir(options_.scratch_dir);
  message.set_report(request.run_options().report());
  // While somebody waits, cores that no other job needs are used too.
  const int share = std::max(1, options_.cores / static_cast<int>(std::max<size_t>(running, 1)));
  message.set_threads(blocking ? share : 1);
  assignment.on_stage = [job](const v1::Stage& stage) { job->task.on_stage(stage); };
  assignment.on_lookup = [job](const v1::KernelLookup& lookup) { return job->task.on_lookup(lookup); };
  assignment.on_done = [this, job](JobOutcome outcome) { OnOutcome(job, std::move(outcome)); };
  return assignment;
}

bool Dispatcher::TryAgain(const JobPtr& job, const JobOutcome& outcome) {
  switch (outcome.kind) {
    case JobOutcome::Kind::kResult:
    case JobOutcome::Kind::kCancelled:
      return false;
    case JobOutcome::Kind::kNotStarted:
      if (++job->false_starts > kMaxFalseStarts) return false;
      break;
    default:
      job->circumstances |= outcome.kind == JobOutcome::Kind::kKilled ||
                            outcome.kind == JobOutcome::Kind::kOutOfMemory ||
                            (outcome.kind == JobOutcome::Kind::kTimedOut && !job->entry.blocking);
      if (++job->failures > 1) return false;
  }
  if (job->cancelled || closed_) return false;
  job->submitted = absl::Now();
  queue_.PushBack(job->entry);
  return true;
}

void Dispatcher::OnOutcome(const JobPtr& job, JobOutcome outcome) {
  const absl::Duration compiling = absl::Now() - job->started;
  metrics_->compiles_ended.Add(ResultLabel(outcome));
  metrics_->compile_seconds.Observe(absl::ToDoubleSeconds(compiling));
  {
    absl::MutexLock lock(&mu_);
    --running_;
    progress_ = absl::Now();
    queue_.Finished(job->entry.tenant);
    job->control.reset();
    if (outcome.kind == JobOutcome::Kind::kResult) mean_compile_ = mean_compile_ * 0.8 + compiling * 0.2;
    if (TryAgain(job, outcome)) {
      metrics_->retries.Increment();
      spdlog::warn("compile of {} is tried again: {}", job->task.key.Hex(), outcome.text);
      return;
    }
    jobs_.erase(job->entry.id);
  }
  CompileOutcome conclusion = Conclude(*job, std::move(outcome));
  conclusion.queued = job->queued;
  conclusion.compiling = compiling;
  job->task.on_done(std::move(conclusion));
}

CompileOutcome Dispatcher::Conclude(Job& job, JobOutcome outcome) {
  CompileOutcome conclusion;
  if (outcome.kind == JobOutcome::Kind::kResult && !outcome.result.has_error()) {
    conclusion.result = std::move(outcome.result);
    return conclusion;
  }
  if (outcome.kind == JobOutcome::Kind::kResult) {
    conclusion.status = FromErrorDetail(outcome.result.error());
    conclusion.deterministic = IsDeterministic(conclusion.status.code());
    if (absl::IsInternal(conclusion.status)) {
      conclusion.status = InternalWithReproducer(job, std::string(conclusion.status.message()),
                                                 ToErrorDetail(conclusion.status), outcome.worker_log);
    }
    return conclusion;
  }
  if (job.cancelled) {
    conclusion.status = absl::CancelledError("compile was cancelled");
    return conclusion;
  }
  if (job.failures < 2) {
    // The server stops, or no worker could be had.
    conclusion.status =
        RetryLater(absl::UnavailableError(absl::StrCat("worker was lost: ", outcome.text)), absl::Seconds(1));
    return conclusion;
  }
  conclusion.deterministic = !job.circumstances;
  conclusion.status = InternalWithReproducer(
      job,
      absl::StrCat("two workers were lost over this request; the second ", ResultLabel(outcome), ": ", outcome.text),
      {}, outcome.worker_log);
  return conclusion;
}

absl::Status Dispatcher::InternalWithReproducer(const Job& job, const std::string& message, v1::ErrorDetail detail,
                                                const std::string& worker_log) {
  const std::string report = absl::StrCat("key: ", job.task.key.Hex(), "\npass: ", detail.pass(), "\n", message, "\n");
  absl::StatusOr<std::string> id = reproducers_->Write(job.task.key, *job.task.request, report, worker_log);
  if (id.ok()) {
    metrics_->reproducers.Increment();
    detail.set_reproducer_id(*id);
    spdlog::error("compile failed, reproducer {}: {}", *id, message);
  } else {
    spdlog::error("compile failed and its reproducer could not be written ({}): {}", ToStd(id.status().message()),
                  message);
  }
  return WithDetail(absl::InternalError(message), std::move(detail));
}

}  // namespace stepone::server
