// Brings admitted compiles to workers and takes care of workers that die.
#ifndef STEPONE_SERVER_DISPATCHER_H_
#define STEPONE_SERVER_DISPATCHER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/digest.h"
#include "server/admission_queue.h"
#include "server/metrics.h"
#include "server/reproducer_store.h"
#include "server/timer_queue.h"
#include "server/worker_pool.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::server {

// How a compile ended, after all attempts.
struct CompileOutcome {
  absl::Status status;  // OK: `result` holds the artifact's parts
  v1::JobResult result;
  bool deterministic = false;  // the failure would come again: worth remembering
  absl::Duration queued = absl::ZeroDuration();
  absl::Duration compiling = absl::ZeroDuration();
};

// One compile. Callbacks run on the dispatcher's, a worker slot's or the timer's thread, without a lock; `on_done` is
// called exactly once, last, and never from within Submit().
struct CompileTask {
  Digest key;
  std::shared_ptr<const v1::CompileRequest> request;
  bool blocking = false;
  absl::Time queue_deadline = absl::InfiniteFuture();  // given up if no worker took it by then
  std::function<void(int position, absl::Duration eta)> on_queued;
  std::function<void(const v1::Stage&)> on_stage;
  std::function<v1::KernelAnswer(const v1::KernelLookup&)> on_lookup;
  std::function<void(CompileOutcome)> on_done;
};

// A worker that crashes, hangs, runs out of memory or answers with nonsense costs one attempt: the task is tried once
// more on a fresh worker, and then fails with kInternal and a reproducer. Thread-safe.
class Dispatcher : public JobSource {
 public:
  struct Options {
    AdmissionQueue::Options queue;
    absl::Duration job_timeout = absl::Seconds(120);  // of one attempt
    int workers = 1;
    int cores = 1;            // that all jobs together may use
    std::string scratch_dir;  // told to workers as Job.reproducer_dir
  };

  // All must outlive the dispatcher.
  Dispatcher(Options options, ReproducerStore* reproducers, TimerQueue* timers, Metrics* metrics);

  // Admits a task and returns its id for the calls below. kResourceExhausted with retry_after_ms when the queue is
  // full, kUnavailable after Close(); callbacks are then never called.
  absl::StatusOr<uint64_t> Submit(CompileTask task);
  // Nobody wants the task any more: it ends with kCancelled, soon.
  void Cancel(uint64_t id);
  // Somebody waits for the task now.
  void Raise(uint64_t id);
  // Fails what waits with kUnavailable and admits nothing any more. Running jobs go on.
  void Close();

  size_t queue_length() const;
  size_t running() const;
  // How long, at `now`, jobs have waited although some worker has none, and no job has begun or ended: zero when
  // nothing waits or every worker has a job. Longer than a worker takes to start, workers can't be had.
  absl::Duration StalledFor(absl::Time now) const;

  std::optional<Assignment> NextJob(absl::Duration timeout) override;

 private:
  struct Job {
    CompileTask task;
    AdmissionQueue::Entry entry;
    std::shared_ptr<JobControl> control;  // while it runs
    int failures = 0;
    int false_starts = 0;
    bool circumstances = false;  // an attempt failed for a reason that may go away
    bool cancelled = false;
    absl::Time submitted, started;
    absl::Duration queued = absl::ZeroDuration();
  };
  using JobPtr = std::shared_ptr<Job>;

  Assignment MakeAssignment(const JobPtr& job, bool blocking, size_t running);
  void OnOutcome(const JobPtr& job, JobOutcome outcome);
  // True when the job is to be tried once more; it waits in the queue again then.
  bool TryAgain(const JobPtr& job, const JobOutcome& outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  CompileOutcome Conclude(Job& job, JobOutcome outcome);
  absl::Status InternalWithReproducer(const Job& job, const std::string& message, v1::ErrorDetail detail,
                                      const std::string& worker_log);
  void FailWaiting(const std::vector<JobPtr>& jobs, const absl::Status& status);
  void ExpireWaiting();
  void TellPositions();
  absl::Duration RetryAfter() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  ReproducerStore* const reproducers_;
  TimerQueue* const timers_;
  Metrics* const metrics_;

  mutable absl::Mutex mu_;
  AdmissionQueue queue_ ABSL_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, JobPtr> jobs_ ABSL_GUARDED_BY(mu_);  // waiting and running
  uint64_t next_id_ ABSL_GUARDED_BY(mu_) = 1;
  size_t running_ ABSL_GUARDED_BY(mu_) = 0;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  absl::Time progress_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();      // when a job last began or ended
  absl::Duration mean_compile_ ABSL_GUARDED_BY(mu_) = absl::Seconds(2);  // of late
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_DISPATCHER_H_
