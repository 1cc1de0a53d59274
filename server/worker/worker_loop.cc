#include "server/worker/worker_loop.h"

#include <cstdio>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "compiler/compile.h"
#include "proto/status.h"
#include "server/scheduling_class.h"
#include "server/worker/crash_report.h"
#include "server/worker/sandbox.h"
#include "stepone/v1/worker.pb.h"

namespace stepone::server {
namespace {

// Sends progress and kernel look-ups of one job. The compiler's threads share the connection through a mutex.
class JobLink : public compiler::KernelCache, public compiler::CompileObserver {
 public:
  explicit JobLink(WorkerChannel& channel) : channel_(channel) {}

  std::vector<std::string> Lookup(const std::vector<std::string>& kernel_keys) override {
    std::vector<std::string> objects(kernel_keys.size());
    if (kernel_keys.empty()) return objects;
    v1::FromWorker question;
    for (const std::string& key : kernel_keys) question.mutable_kernel_lookup()->add_kernel_keys(key);
    absl::MutexLock lock(&mu_);
    if (!channel_.Write(question, absl::InfiniteFuture()).ok()) return objects;
    while (!cancelled_) {
      v1::ToWorker answer;
      if (!channel_.Read(answer, absl::InfiniteFuture()).ok()) {
        cancelled_ = true;  // nobody is left to send a result to
      } else if (answer.has_cancel()) {
        cancelled_ = true;
      } else if (answer.has_kernel_answer()) {
        for (int i = 0; i < answer.kernel_answer().objects_size() && i < static_cast<int>(objects.size()); ++i) {
          objects[static_cast<size_t>(i)] = std::move(*answer.mutable_kernel_answer()->mutable_objects(i));
        }
        return objects;
      }
    }
    return objects;
  }

  void OnStage(std::string_view stage, int kernels_done, int kernels_total) override {
    SetCrashStage(stage);
    v1::FromWorker message;
    message.mutable_stage()->set_name(std::string(stage));
    message.mutable_stage()->set_kernels_done(kernels_done);
    message.mutable_stage()->set_kernels_total(kernels_total);
    absl::MutexLock lock(&mu_);
    channel_.Write(message, absl::InfiniteFuture()).IgnoreError();
  }

  bool Cancelled() override {
    absl::MutexLock lock(&mu_);
    v1::ToWorker message;
    absl::Status status = cancelled_ ? absl::OkStatus() : channel_.Read(message, absl::Now());
    // Anything but silence: a cancellation, or a front process that is gone.
    if (!absl::IsDeadlineExceeded(status)) cancelled_ = true;
    return cancelled_;
  }

 private:
  absl::Mutex mu_;
  WorkerChannel& channel_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
};

v1::JobResult RunJob(const v1::Job& job, JobLink& link) {
  compiler::CompileInput input;
  input.graph = &job.graph();
  input.target = job.target();
  input.options = job.code_options();
  input.report = job.report();
  input.threads = job.threads() > 0 ? job.threads() : 1;
  absl::StatusOr<compiler::CompileResult> compiled = compiler::Compile(input, link, link);
  v1::JobResult result;
  if (!compiled.ok()) {
    *result.mutable_error() = ToErrorDetail(compiled.status());
    return result;
  }
  *result.mutable_manifest() = std::move(compiled->manifest);
  for (v1::ObjectBytes& object : compiled->objects) *result.add_objects() = std::move(object);
  for (v1::CompiledKernel& kernel : compiled->new_kernels) *result.add_new_kernels() = std::move(kernel);
  return result;
}

v1::FromWorker MakeHello(const std::vector<std::string>& sandbox) {
  v1::FromWorker message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_compiler_fingerprint(compiler::Fingerprint());
  v1::BackendCapability& backend = *hello.add_backends();
  backend.set_name("stepone");
  backend.set_available(true);
  for (v1::Target& target : compiler::HostTargets()) {
    if (backend.device_types().empty() || *backend.device_types().rbegin() != target.device_type()) {
      backend.add_device_types(target.device_type());
    }
    *hello.add_targets() = std::move(target);
  }
  for (const std::string& part : sandbox) hello.add_sandbox(part);
  return message;
}

}  // namespace

int RunWorkerLoop(WorkerChannel& channel, const std::vector<std::string>& sandbox) {
  if (!channel.Write(MakeHello(sandbox), absl::InfiniteFuture()).ok()) return 1;
  while (true) {
    v1::ToWorker message;
    absl::Status status = channel.Read(message, absl::InfiniteFuture());
    if (absl::IsUnavailable(status)) return 0;
    if (!status.ok()) {
      std::fprintf(stderr, "%s\n", status.ToString().c_str());
      return 1;
    }
    if (!message.has_job()) continue;  // a cancellation that came too late
    const v1::Job& job = message.job();
    if (job.deadline_ms() > 0)
      LimitCpuSeconds((job.deadline_ms() / 1000 + 1) * (job.threads() > 0 ? job.threads() : 1));
    v1::FromWorker answer;
    // A thread that entered the idle class can't leave it without privileges, so every job gets a new one.
    std::thread([&] {
      AlternateStack stack;
      if (!job.blocking_step()) {
        if (absl::Status idle = SetCallingThread(SchedulingClass::kIdle); !idle.ok()) {
          std::fprintf(stderr, "%s\n", idle.ToString().c_str());
        }
      }
      JobLink link(channel);
      *answer.mutable_result() = RunJob(job, link);
      SetCrashStage("answer");
    }).join();
    if (absl::Status sent = channel.Write(answer, absl::InfiniteFuture()); absl::IsInvalidArgument(sent)) {
      answer.Clear();
      *answer.mutable_result()->mutable_error() = ToErrorDetail(absl::ResourceExhaustedError(sent.message()));
      if (!channel.Write(answer, absl::InfiniteFuture()).ok()) return 0;
    } else if (!sent.ok()) {
      return 0;
    }
    SetCrashStage("idle");
  }
}

}  // namespace stepone::server
