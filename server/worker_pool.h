// N worker processes that take jobs from one source.
//
// Each slot has a thread that owns one worker process and drives it through
//
//   STARTING --hello--> IDLE --job--> BUSY --result--> IDLE
//       |                 |             |----result--> DRAINING (recycled: too many jobs, too much memory) --> STARTING
//       |                 |             |----crash, deadline, bad output, cancel not obeyed--> DEAD
//       '--no hello--> DEAD <--died-----'        DEAD --after a back-off if it never got as far as IDLE--> STARTING
//
// A job is only asked for in IDLE, so a worker that can't start costs no job.
#ifndef STEPONE_SERVER_WORKER_POOL_H_
#define STEPONE_SERVER_WORKER_POOL_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/unique_fd.h"
#include "server/worker_process.h"
#include "stepone/v1/worker.pb.h"

namespace stepone::server {

// Reaches a job while a worker runs it. Thread-safe; calls before the job starts or after it ended do nothing harmful.
class JobControl {
 public:
  JobControl();
  // Nobody wants the result: the worker is asked to stop, and killed if it does not.
  void Cancel();
  // Somebody waits now: the worker leaves the idle scheduling class.
  void Raise();

 private:
  friend class WorkerPool;
  void Wake();
  // Reads and clears the wake-up.
  void Acknowledge();

  UniqueFd event_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> raised_{false};
};

// How one attempt at a job ended.
struct JobOutcome {
  enum class Kind {
    kResult,       // `result` is what the worker answered, which may be an error
    kCrashed,      // the worker died of the job
    kKilled,       // somebody or the kernel killed the worker
    kOutOfMemory,  // the worker hit its own memory limit
    kTimedOut,     // killed at the job's deadline
    kBadOutput,    // the worker answered with bytes that are no answer, or left without one
    kCancelled,    // JobControl::Cancel()
    kNotStarted,   // the worker was found dead before it had read the job; the job is not to blame
  };
  Kind kind = Kind::kResult;
  v1::JobResult result;
  std::string text;        // how the worker ended
  std::string worker_log;  // last part of its stderr; empty for kResult
};

// One job as a slot sees it. Callbacks run on the slot's thread; they may block, and nothing else of that slot happens
// meanwhile. `on_done` is called exactly once, last.
struct Assignment {
  v1::Job job;
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<JobControl> control;
  std::function<void(const v1::Stage&)> on_stage;
  std::function<v1::KernelAnswer(const v1::KernelLookup&)> on_lookup;
  std::function<void(JobOutcome)> on_done;
};

// Where slots get jobs from. Thread-safe.
class JobSource {
 public:
  virtual ~JobSource() = default;
  // The most urgent job; nothing when `timeout` passed or the source was closed.
  virtual std::optional<Assignment> NextJob(absl::Duration timeout) = 0;
};

// Thread-safe.
class WorkerPool {
 public:
  struct Options {
    WorkerProcess::Options process;  // `log_path` is the stem: the slot's number and ".log" are appended
    int workers = 1;
    absl::Duration hello_timeout = absl::Seconds(30);
    int jobs_per_worker = 200;                       // recycled after so many jobs; 1 isolates each request
    size_t max_rss_bytes = 1u << 30;                 // recycled when it holds more after a job
    absl::Duration cancel_grace = absl::Seconds(2);  // from "please stop" to SIGKILL
    absl::Duration min_backoff = absl::Milliseconds(100);
    absl::Duration max_backoff = absl::Seconds(10);
  };
  // How many slots are in which state, and what happened so far.
  struct Stats {
    int starting = 0, idle = 0, busy = 0, draining = 0, dead = 0;
    int64_t spawned = 0, crashed = 0, timed_out = 0, recycled = 0;
  };

  // `source` must outlive the pool.
  WorkerPool(Options options, JobSource* source);
  // Calls Stop().
  ~WorkerPool();

  // Starts the slots and waits for the first Hello, which says what all workers must say; a worker with another
  // compiler fingerprint is not used. kUnavailable when no worker spoke within Options::hello_timeout, with what it
  // wrote last.
  absl::StatusOr<v1::Hello> Start();

  // Kills the workers; running jobs end with kCancelled. Waits for the slots' threads. Close the source first.
  void Stop();

  Stats stats() const;

 private:
  enum class State { kStarting, kIdle, kBusy, kDraining, kDead };
  struct Slot {
    int number = 0;
    std::thread thread;
    std::unique_ptr<WorkerProcess> process;  // used by the slot's thread alone
    int jobs_done = 0;                       // of this process
    absl::Duration backoff;
  };

  void RunSlot(Slot& slot);
  bool EnsureStarted(Slot& slot);
  absl::Status ReadHello(Slot& slot);
  void RunJob(Slot& slot, Assignment& assignment);
  JobOutcome Exchange(Slot& slot, Assignment& assignment);
  // Returns an outcome when the job is over because of what `control` asked for.
  std::optional<JobOutcome> Obey(Slot& slot, Assignment& assignment, absl::Time& deadline, bool& cancel_sent);
  JobOutcome Abort(Slot& slot, JobOutcome::Kind kind, absl::string_view why);
  void AfterJob(Slot& slot);
  void SetState(int slot, State state);
  // Sleeps; returns early when the pool stops.
  void Pause(absl::Duration duration);
  bool stopping() const;

  const Options options_;
  JobSource* const source_;
  std::vector<std::unique_ptr<Slot>> slots_;  // constant after Start()

  mutable absl::Mutex mu_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<State> states_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<JobControl>> running_ ABSL_GUARDED_BY(mu_);  // per slot
  std::optional<v1::Hello> hello_ ABSL_GUARDED_BY(mu_);
  std::string start_error_ ABSL_GUARDED_BY(mu_);
  Stats totals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_WORKER_POOL_H_
