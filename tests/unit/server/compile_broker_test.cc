// The broker's policy without sockets and processes: the test plays the workers by hand.
#include "server/compile_broker.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "cache/store_factory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status.h"
#include "tests/testlib/sample_request.h"

namespace stepone::server {
namespace {

using ::testing::ElementsAre;
using testing::FakeTarget;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SampleRequest;

// Collects what one stream gets.
class Reader : public EventSink {
 public:
  void OnEvent(const v1::CompileEvent& event) override {
    absl::MutexLock lock(&mu_);
    EXPECT_FALSE(end_.has_value()) << "event after the end";
    events_.push_back(event);
  }
  void OnEnd(const absl::Status& status) override {
    absl::MutexLock lock(&mu_);
    EXPECT_FALSE(end_.has_value()) << "ended twice";
    end_ = status;
  }

  absl::Status End() {
    absl::MutexLock lock(&mu_);
    const auto ended = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return end_.has_value(); };
    mu_.Await(absl::Condition(&ended));
    return *end_;
  }
  // The first event of a kind, waiting for it.
  v1::CompileEvent Await(v1::CompileEvent::EventCase kind) {
    absl::MutexLock lock(&mu_);
    const auto found = [this, kind]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) { return First(kind) != nullptr; };
    mu_.Await(absl::Condition(&found));
    return *First(kind);
  }
  v1::Done Done() {
    EXPECT_TRUE(End().ok()) << End();
    return Await(v1::CompileEvent::kDone).done();
  }
  bool Ended() {
    absl::MutexLock lock(&mu_);
    return end_.has_value();
  }

 private:
  const v1::CompileEvent* First(v1::CompileEvent::EventCase kind) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (const v1::CompileEvent& event : events_) {
      if (event.event_case() == kind) return &event;
    }
    return nullptr;
  }

  absl::Mutex mu_;
  std::vector<v1::CompileEvent> events_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mu_);
};

using ReaderPtr = std::shared_ptr<Reader>;

struct Call {
  ReaderPtr reader;
  std::string operation;
};

// What a worker would answer: one object made of `text`.
JobOutcome Result(const std::string& text) {
  JobOutcome outcome;
  const std::string digest = Sha256(text).Raw();
  v1::Manifest& manifest = *outcome.result.mutable_manifest();
  manifest.set_format_version(1);
  v1::ObjectRef& reference = *manifest.add_objects();
  reference.set_digest(digest);
  reference.set_size_bytes(text.size());
  manifest.add_kernels()->set_name("k");
  v1::ObjectBytes& object = *outcome.result.add_objects();
  object.set_digest(digest);
  object.set_data(text);
  return outcome;
}

JobOutcome Lost(JobOutcome::Kind kind) {
  JobOutcome outcome;
  outcome.kind = kind;
  outcome.text = "the test says so";
  outcome.worker_log = "last words";
  return outcome;
}

JobOutcome Failure(const absl::Status& status) {
  JobOutcome outcome;
  *outcome.result.mutable_error() = ToErrorDetail(status);
  return outcome;
}

class CompileBrokerTest : public ::testing::Test {
 protected:
  CompileBrokerTest() : key_(SigningKey::Generate()) { Build({}, {}); }
  ~CompileBrokerTest() override { TearDownParts(); }

  void Build(CompileBroker::Options options, Dispatcher::Options dispatcher_options) {
    TearDownParts();
    if (store_ == nullptr) store_ = std::move(OpenStore({}).value().store);
    timers_ = std::make_unique<TimerQueue>();
    executor_ = std::make_unique<Executor>(4, 1000);
    metrics_ = std::make_unique<Metrics>();
    reproducers_ = std::make_unique<ReproducerStore>(::testing::TempDir() + "/stepone_broker_crash", 10);
    dispatcher_ = std::make_unique<Dispatcher>(dispatcher_options, reproducers_.get(), timers_.get(), metrics_.get());
    CompileBroker::Parts parts;
    parts.dispatcher = dispatcher_.get();
    parts.store = store_.get();
    parts.key = &key_;
    parts.executor = executor_.get();
    parts.timers = timers_.get();
    parts.metrics = metrics_.get();
    broker_ = std::make_unique<CompileBroker>(options, parts);
    v1::Hello hello;
    hello.set_compiler_fingerprint("test 1");
    *hello.add_targets() = FakeTarget();
    hello.add_backends()->set_name("stepone");
    hello.mutable_backends(0)->set_available(true);
    broker_->SetWorkers(hello);
  }

  void TearDownParts() {
    if (dispatcher_ != nullptr) dispatcher_->Close();
    if (executor_ != nullptr) executor_->Stop();
    if (timers_ != nullptr) timers_->Stop();
    broker_.reset();
    dispatcher_.reset();
  }

  Call Compile(const v1::CompileRequest& request) {
    Call call;
    call.reader = std::make_shared<Reader>();
    call.operation = broker_->Compile(request, call.reader);
    return call;
  }

  // The next job, which must come.
  Assignment Take() {
    std::optional<Assignment> assignment = dispatcher_->NextJob(absl::Seconds(30));
    EXPECT_TRUE(assignment.has_value());
    return *std::move(assignment);
  }
  bool NothingToDo() { return !dispatcher_->NextJob(absl::ZeroDuration()).has_value(); }

  SigningKey key_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<TimerQueue> timers_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<ReproducerStore> reproducers_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<CompileBroker> broker_;
};

TEST_F(CompileBrokerTest, CompilesSignsStoresAndHits) {
  Call cold = Compile(SampleRequest(8));
  Assignment job = Take();
  EXPECT_EQ(job.job.graph().nodes(0).op(), "aten.relu.default");
  v1::Stage stage;
  stage.set_name("build");
  job.on_stage(stage);
  job.on_done(Result("object"));
  const v1::Done done = cold.reader->Done();
  EXPECT_EQ(done.source(), v1::SOURCE_COMPILED);
  EXPECT_EQ(cold.reader->Await(v1::CompileEvent::kStage).stage().name(), "build");
  EXPECT_FALSE(cold.reader->Await(v1::CompileEvent::kAccepted).accepted().joined());
  EXPECT_EQ(cold.reader->Await(v1::CompileEvent::kAccepted).operation(), cold.operation);

  const v1::SignedManifest& signed_manifest = done.artifact().signed_manifest();
  TrustedKeys trusted;
  ASSERT_TRUE(trusted.Add(key_.public_key()).ok());
  EXPECT_TRUE(trusted.Verify(signed_manifest).ok());
  EXPECT_EQ(signed_manifest.tenant(), "t");
  v1::Manifest manifest;
  ASSERT_TRUE(manifest.ParseFromString(signed_manifest.manifest()));
  EXPECT_EQ(manifest.graph_key(), signed_manifest.graph_key());
  EXPECT_EQ(manifest.compiler_fingerprint(), "test 1");
  ASSERT_EQ(done.artifact().objects_size(), 1);
  EXPECT_EQ(done.artifact().objects(0).data(), "object");

  Call warm = Compile(SampleRequest(8));
  const v1::Done hit = warm.reader->Done();
  EXPECT_EQ(hit.source(), v1::SOURCE_MEMORY);
  EXPECT_EQ(hit.artifact().SerializeAsString(), done.artifact().SerializeAsString());
  EXPECT_TRUE(NothingToDo());
  EXPECT_EQ(metrics_->compiles_begun.Value(), 1);
  EXPECT_EQ(metrics_->misses.Value(), 1);
  EXPECT_EQ(metrics_->hits.Value("memory"), 1);
}

TEST_F(CompileBrokerTest, KnownObjectsAreNotSentAgain) {
  Compile(SampleRequest(8));
  Take().on_done(Result("object"));
  v1::CompileRequest request = SampleRequest(8);
  request.add_known_objects(Sha256("object").Raw());
  EXPECT_THAT(Compile(request).reader->Done().artifact().objects(), IsEmpty());
}

TEST_F(CompileBrokerTest, LargeObjectsAreLeftOutAndCanBeFetched) {
  CompileBroker::Options options;
  options.inline_object_bytes = 10;
  Build(options, {});
  Call call = Compile(SampleRequest(8));
  const std::string large(1000, 'x');
  Take().on_done(Result(large));
  EXPECT_THAT(call.reader->Done().artifact().objects(), IsEmpty());

  v1::FetchRequest fetch;
  fetch.set_digest(Sha256(large).Raw());
  absl::Notification fetched;
  broker_->Fetch(fetch, [&](absl::StatusOr<Blob> object) {
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(**object, large);
    fetched.Notify();
  });
  fetched.WaitForNotification();
}

TEST_F(CompileBrokerTest, ManyEqualRequestsAreOneCompile) {
  std::vector<Call> calls(100);
  std::vector<std::thread> threads;
  for (Call& call : calls) threads.emplace_back([this, &call] { call = Compile(SampleRequest(8)); });
  for (std::thread& thread : threads) thread.join();
  for (Call& call : calls) call.reader->Await(v1::CompileEvent::kAccepted);
  Take().on_done(Result("object"));
  int compiled = 0;
  std::string bytes;
  for (Call& call : calls) {
    const v1::Done done = call.reader->Done();
    compiled += done.source() == v1::SOURCE_COMPILED;
    if (bytes.empty()) bytes = done.artifact().SerializeAsString();
    EXPECT_EQ(done.artifact().SerializeAsString(), bytes);
  }
  EXPECT_EQ(compiled, 1);
  EXPECT_TRUE(NothingToDo());
  EXPECT_EQ(metrics_->compiles_begun.Value(), 1);
  EXPECT_EQ(metrics_->joins.Value(), 99);
}

TEST_F(CompileBrokerTest, WaitingIsAStallOnlyWhileAWorkerIsFree) {
  const auto in_an_hour = [this] { return dispatcher_->StalledFor(absl::Now() + absl::Hours(1)); };
  EXPECT_EQ(in_an_hour(), absl::ZeroDuration());
  Call first = Compile(SampleRequest(1));
  first.reader->Await(v1::CompileEvent::kQueued);
  EXPECT_GE(in_an_hour(), absl::Hours(1));
  EXPECT_EQ(dispatcher_->StalledFor(absl::Now() - absl::Hours(1)), absl::ZeroDuration());

  Assignment job = Take();
  Call second = Compile(SampleRequest(2));
  second.reader->Await(v1::CompileEvent::kQueued);
  EXPECT_EQ(in_an_hour(), absl::ZeroDuration()) << "the only worker is busy";
  const absl::Time before_the_end = absl::Now();
  job.on_done(Result("object"));
  EXPECT_GE(in_an_hour(), absl::Hours(1));
  EXPECT_EQ(dispatcher_->StalledFor(before_the_end), absl::ZeroDuration()) << "a job that ends is progress";

  Take().on_done(Result("object"));
  second.reader->Done();
  EXPECT_EQ(in_an_hour(), absl::ZeroDuration());
}

TEST_F(CompileBrokerTest, TenantsDoNotShare) {
  v1::CompileRequest other = SampleRequest(8);
  other.mutable_context()->set_tenant("u");
  Call first = Compile(SampleRequest(8));
  Take().on_done(Result("object"));
  first.reader->Done();
  Call second = Compile(other);
  Take().on_done(Result("object"));
  EXPECT_EQ(second.reader->Done().source(), v1::SOURCE_COMPILED);

  v1::CancelRequest cancel;
  cancel.mutable_context()->set_tenant("u");
  cancel.set_operation(first.operation);
  EXPECT_FALSE(broker_->Cancel(cancel));
}

TEST_F(CompileBrokerTest, ALeaderThatCancelsDoesNotStrandFollowers) {
  Call leader = Compile(SampleRequest(8));
  Assignment job = Take();
  Call follower = Compile(SampleRequest(8));
  follower.reader->Await(v1::CompileEvent::kAccepted);
  v1::CancelRequest cancel;
  cancel.mutable_context()->set_tenant("t");
  cancel.set_operation(leader.operation);
  EXPECT_TRUE(broker_->Cancel(cancel));
  EXPECT_EQ(leader.reader->End().code(), absl::StatusCode::kCancelled);
  job.on_done(Result("object"));
  EXPECT_EQ(follower.reader->Done().source(), v1::SOURCE_JOINED);
  EXPECT_FALSE(broker_->Cancel(cancel));
}

TEST_F(CompileBrokerTest, WhenNobodyWaitsTheCompileIsCancelledAfterTheGraceTime) {
  CompileBroker::Options options;
  options.grace = absl::Milliseconds(10);
  Build(options, {});
  Call call = Compile(SampleRequest(8));
  Compile(SampleRequest(9));  // keeps no one from being cancelled: another key
  Assignment job = Take(), other = Take();
  v1::CancelRequest cancel;
  cancel.mutable_context()->set_tenant("t");
  cancel.set_operation(call.operation);
  ASSERT_TRUE(broker_->Cancel(cancel));
  // The same request now leads to a compile of its own, once the old one was given up.
  std::optional<Assignment> again;
  while (!again.has_value()) {
    Call next = Compile(SampleRequest(8));
    next.reader->Await(v1::CompileEvent::kAccepted);
    if (!next.reader->Await(v1::CompileEvent::kAccepted).accepted().joined()) {
      again = Take();
      again->on_done(Result("object"));
      EXPECT_EQ(next.reader->Done().source(), v1::SOURCE_COMPILED);
    } else {
      cancel.set_operation(next.operation);
      broker_->Cancel(cancel);
      std::this_thread::yield();
    }
  }
  job.on_done(Lost(JobOutcome::Kind::kCancelled));
  other.on_done(Result("other"));
}

TEST_F(CompileBrokerTest, ABrokenStreamCanBeAttachedAgain) {
  Call call = Compile(SampleRequest(8));
  Assignment job = Take();
  v1::Stage stage;
  stage.set_name("build");
  job.on_stage(stage);
  call.reader->Await(v1::CompileEvent::kStage);
  broker_->Detach(call.operation, call.reader.get());

  v1::AttachRequest attach;
  attach.mutable_context()->set_tenant("t");
  attach.set_operation(call.operation);
  auto second = std::make_shared<Reader>();
  broker_->Attach(attach, second);
  EXPECT_EQ(second->Await(v1::CompileEvent::kStage).stage().name(), "build");
  job.on_done(Result("object"));
  EXPECT_EQ(second->Done().source(), v1::SOURCE_COMPILED);
  EXPECT_FALSE(call.reader->Ended());

  // Also after the end, for a while: the last event may have been lost.
  auto third = std::make_shared<Reader>();
  broker_->Attach(attach, third);
  EXPECT_EQ(third->Done().artifact().objects(0).data(), "object");
  EXPECT_EQ(metrics_->compiles_begun.Value(), 1);
}

TEST_F(CompileBrokerTest, AttachingElsewhereEndsTheOldStream) {
  Call call = Compile(SampleRequest(8));
  Assignment job = Take();
  v1::AttachRequest attach;
  attach.mutable_context()->set_tenant("t");
  attach.set_operation(call.operation);
  auto second = std::make_shared<Reader>();
  broker_->Attach(attach, second);
  EXPECT_EQ(call.reader->End().code(), absl::StatusCode::kAborted);
  job.on_done(Result("object"));
  second->Done();
}

TEST_F(CompileBrokerTest, OnlyTheOwnTenantCanAttach) {
  Call call = Compile(SampleRequest(8));
  Assignment job = Take();
  v1::AttachRequest attach;
  attach.mutable_context()->set_tenant("u");
  attach.set_operation(call.operation);
  auto stranger = std::make_shared<Reader>();
  broker_->Attach(attach, stranger);
  EXPECT_EQ(stranger->End().code(), absl::StatusCode::kNotFound);
  job.on_done(Result("object"));
  call.reader->Done();
}

TEST_F(CompileBrokerTest, AnInvalidRequestNeverReachesAWorker) {
  v1::CompileRequest request = SampleRequest(8);
  request.mutable_graph()->mutable_nodes(0)->set_op("nonsense");
  Call call = Compile(request);
  const absl::Status status = call.reader->End();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ToErrorDetail(status).rule(), "op-name");
  EXPECT_EQ(ToErrorDetail(status).node(), "relu");
  EXPECT_TRUE(NothingToDo());
  EXPECT_EQ(metrics_->refusals.Value("invalid"), 1);
}

TEST_F(CompileBrokerTest, ALostWorkerIsReplacedOnce) {
  Call call = Compile(SampleRequest(8));
  Take().on_done(Lost(JobOutcome::Kind::kCrashed));
  Take().on_done(Result("object"));
  EXPECT_EQ(call.reader->Done().source(), v1::SOURCE_COMPILED);
  EXPECT_EQ(metrics_->retries.Value(), 1);
}

TEST_F(CompileBrokerTest, TwoCrashesAreInternalWithAReproducerAndRemembered) {
  Call call = Compile(SampleRequest(8));
  Take().on_done(Lost(JobOutcome::Kind::kCrashed));
  Take().on_done(Lost(JobOutcome::Kind::kCrashed));
  const absl::Status status = call.reader->End();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  const v1::ErrorDetail detail = call.reader->Await(v1::CompileEvent::kFailed).failed();
  EXPECT_EQ(detail.reproducer_id().size(), 16u);
  EXPECT_EQ(metrics_->reproducers.Value(), 1);

  Call again = Compile(SampleRequest(8));
  EXPECT_EQ(again.reader->End().message(), status.message());
  EXPECT_TRUE(NothingToDo());
  EXPECT_EQ(metrics_->refusals.Value("remembered_failure"), 1);

  v1::CompileRequest fresh = SampleRequest(8);
  fresh.mutable_run_options()->set_recompile(true);
  Call forced = Compile(fresh);
  Take().on_done(Result("object"));
  forced.reader->Done();
  EXPECT_EQ(Compile(SampleRequest(8)).reader->Done().source(), v1::SOURCE_MEMORY);
}

TEST_F(CompileBrokerTest, CircumstancesAreTriedAgainAtTheNextRequest) {
  for (JobOutcome::Kind kind : {JobOutcome::Kind::kKilled, JobOutcome::Kind::kOutOfMemory}) {
    Call call = Compile(SampleRequest(8));
    Take().on_done(Lost(kind));
    Take().on_done(Lost(kind));
    EXPECT_EQ(call.reader->End().code(), absl::StatusCode::kInternal);
  }
  Call full = Compile(SampleRequest(8));
  Take().on_done(Failure(absl::ResourceExhaustedError("no space left")));
  EXPECT_EQ(full.reader->End().code(), absl::StatusCode::kResourceExhausted);
  Call call = Compile(SampleRequest(8));
  Take().on_done(Result("object"));
  call.reader->Done();
}

TEST_F(CompileBrokerTest, FailuresOfTheGraphAreRememberedForATime) {
  CompileBroker::Options options;
  options.failure_time_to_live = absl::ZeroDuration();
  for (const absl::Status& failure : {absl::InvalidArgumentError("bad"), absl::UnimplementedError("not yet")}) {
    Call call = Compile(SampleRequest(8, failure.ToString()));
    Take().on_done(Failure(failure));
    EXPECT_EQ(call.reader->End().code(), failure.code());
    EXPECT_EQ(Compile(SampleRequest(8, failure.ToString())).reader->End().message(), failure.message());
  }
  EXPECT_TRUE(NothingToDo());
  Build(options, {});
  Call call = Compile(SampleRequest(8));
  Take().on_done(Failure(absl::InvalidArgumentError("bad")));
  EXPECT_EQ(call.reader->End().code(), absl::StatusCode::kInvalidArgument);
  Call again = Compile(SampleRequest(8));
  Take().on_done(Result("object"));
  again.reader->Done();
}

TEST_F(CompileBrokerTest, AnAnswerThatContradictsItselfIsInternal) {
  Call call = Compile(SampleRequest(8));
  JobOutcome outcome = Result("object");
  outcome.result.mutable_objects(0)->set_data("something else");
  Take().on_done(std::move(outcome));
  EXPECT_EQ(call.reader->End().code(), absl::StatusCode::kInternal);
}

TEST_F(CompileBrokerTest, AFullQueueTellsWhenToComeBack) {
  Dispatcher::Options dispatcher_options;
  dispatcher_options.queue.max_length = 1;
  Build({}, dispatcher_options);
  Call first = Compile(SampleRequest(1));
  first.reader->Await(v1::CompileEvent::kQueued);
  Call second = Compile(SampleRequest(2));
  const absl::Status status = second.reader->End();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GT(ToErrorDetail(status).retry_after_ms(), 0);
  Take().on_done(Result("object"));
  first.reader->Done();
}

TEST_F(CompileBrokerTest, QueuedOperationsLearnTheirPosition) {
  Call first = Compile(SampleRequest(1));
  EXPECT_EQ(first.reader->Await(v1::CompileEvent::kQueued).queued().position(), 1);
  Call second = Compile(SampleRequest(2));
  EXPECT_EQ(second.reader->Await(v1::CompileEvent::kQueued).queued().position(), 2);
  Take().on_done(Result("a"));
  Take().on_done(Result("b"));
  second.reader->Done();
}

TEST_F(CompileBrokerTest, AFollowerThatBlocksRaisesTheQueuedJob) {
  Compile(SampleRequest(1)).reader->Await(v1::CompileEvent::kQueued);
  Compile(SampleRequest(2)).reader->Await(v1::CompileEvent::kQueued);
  v1::CompileRequest blocking = SampleRequest(2);
  blocking.mutable_run_options()->set_blocking_step(true);
  Compile(blocking).reader->Await(v1::CompileEvent::kAccepted);
  Assignment job = Take();
  EXPECT_EQ(job.job.graph().values(0).tensor().sizes(0).value(), 2);
  EXPECT_TRUE(job.job.blocking_step());
  job.on_done(Result("a"));
  Assignment background = Take();
  EXPECT_FALSE(background.job.blocking_step());
  background.on_done(Result("b"));
}

TEST_F(CompileBrokerTest, DoNotCacheNeitherLooksUpNorStores) {
  v1::CompileRequest request = SampleRequest(8);
  request.mutable_run_options()->set_do_not_cache(true);
  for (int i = 0; i < 2; ++i) {
    Call call = Compile(request);
    Take().on_done(Result("object"));
    EXPECT_EQ(call.reader->Done().source(), v1::SOURCE_COMPILED);
  }
  Call call = Compile(SampleRequest(8));
  Take().on_done(Result("object"));
  EXPECT_EQ(call.reader->Done().source(), v1::SOURCE_COMPILED);
}

TEST_F(CompileBrokerTest, RecompileOverwrites) {
  Call old = Compile(SampleRequest(8));
  Take().on_done(Result("old"));
  old.reader->Done();
  v1::CompileRequest request = SampleRequest(8);
  request.mutable_run_options()->set_recompile(true);
  Call call = Compile(request);
  Take().on_done(Result("new"));
  call.reader->Done();
  EXPECT_EQ(Compile(SampleRequest(8)).reader->Done().artifact().objects(0).data(), "new");
}

TEST_F(CompileBrokerTest, AJobKeepsWhatItWasGiven) {
  v1::CompileRequest of_job = SampleRequest(8), recompile = SampleRequest(8);
  of_job.mutable_context()->set_job("j");
  recompile.mutable_run_options()->set_recompile(true);
  Call rank0 = Compile(of_job);
  Take().on_done(Result("old"));
  rank0.reader->Done();
  Call other = Compile(recompile);
  Take().on_done(Result("new"));
  other.reader->Done();
  EXPECT_EQ(Compile(of_job).reader->Done().artifact().objects(0).data(), "old");
  EXPECT_EQ(Compile(SampleRequest(8)).reader->Done().artifact().objects(0).data(), "new");
}

TEST_F(CompileBrokerTest, ADeadlineEndsTheWaitButNotARunningCompile) {
  v1::CompileRequest request = SampleRequest(8);
  request.mutable_run_options()->set_deadline_ms(50);
  Call call = Compile(request);
  Assignment job = Take();
  v1::Stage stage;
  job.on_stage(stage);
  EXPECT_EQ(call.reader->End().code(), absl::StatusCode::kDeadlineExceeded);
  job.on_done(Result("object"));
  EXPECT_EQ(Compile(SampleRequest(8)).reader->Done().source(), v1::SOURCE_MEMORY);
}

TEST_F(CompileBrokerTest, ADeadlineDropsAJobThatStillWaits) {
  v1::CompileRequest request = SampleRequest(8);
  request.mutable_run_options()->set_deadline_ms(50);
  Call call = Compile(request);
  EXPECT_EQ(call.reader->End().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(broker_->AwaitQuiet(absl::InfiniteDuration()));
  EXPECT_TRUE(NothingToDo());
}

TEST_F(CompileBrokerTest, DrainingRefusesNewAndFinishesOld) {
  Call running = Compile(SampleRequest(1));
  Assignment job = Take();
  Call waiting = Compile(SampleRequest(2));
  waiting.reader->Await(v1::CompileEvent::kQueued);
  broker_->Drain();
  const absl::Status refused = Compile(SampleRequest(3)).reader->End();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_GT(ToErrorDetail(refused).retry_after_ms(), 0);
  EXPECT_FALSE(broker_->AwaitQuiet(absl::ZeroDuration()));
  job.on_done(Result("object"));
  running.reader->Done();
  dispatcher_->Close();
  const absl::Status failed = waiting.reader->End();
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable);
  EXPECT_GT(ToErrorDetail(failed).retry_after_ms(), 0);
  EXPECT_TRUE(broker_->AwaitQuiet(absl::InfiniteDuration()));
}

TEST_F(CompileBrokerTest, KernelsAreKeptForOtherGraphs) {
  Call first = Compile(SampleRequest(1));
  JobOutcome outcome = Result("object");
  const std::string key = Sha256("kernel key").Raw();
  outcome.result.add_new_kernels()->set_kernel_key(key);
  outcome.result.mutable_new_kernels(0)->set_object("object");
  Assignment job = Take();
  v1::KernelLookup lookup;
  lookup.add_kernel_keys(key);
  EXPECT_THAT(job.on_lookup(lookup).objects(), ElementsAre(""));
  job.on_done(std::move(outcome));
  first.reader->Done();
  executor_->Stop();  // the kernels are kept behind the answer
  executor_ = nullptr;

  Build({}, {});
  Call second = Compile(SampleRequest(2));
  job = Take();
  EXPECT_THAT(job.on_lookup(lookup).objects(), ElementsAre("object"));
  job.on_done(Result("object"));
  second.reader->Done();
  EXPECT_EQ(metrics_->kernels_reused.Value(), 1);
}

TEST_F(CompileBrokerTest, FindAndExplainNeverCompile) {
  const auto find = [this](const v1::CompileRequest& request) {
    absl::Notification done;
    v1::FindResponse response;
    broker_->Find(request, [&](absl::StatusOr<v1::FindResponse> answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      response = *std::move(answer);
      done.Notify();
    });
    done.WaitForNotification();
    return response;
  };
  const auto explain = [this](const v1::CompileRequest& request) {
    absl::Notification done;
    v1::ExplainResponse response;
    broker_->Explain(request, [&](absl::StatusOr<v1::ExplainResponse> answer) {
      EXPECT_TRUE(answer.ok()) << answer.status();
      response = *std::move(answer);
      done.Notify();
    });
    done.WaitForNotification();
    return response;
  };
  EXPECT_FALSE(find(SampleRequest(8)).found());
  EXPECT_FALSE(explain(SampleRequest(8)).found());
  Call call = Compile(SampleRequest(8));
  Take().on_done(Result("object"));
  call.reader->Done();
  EXPECT_EQ(find(SampleRequest(8)).artifact().objects(0).data(), "object");
  EXPECT_TRUE(explain(SampleRequest(8)).found());

  v1::CompileRequest near = SampleRequest(8);
  near.mutable_code_options()->set_deterministic(true);
  const v1::ExplainResponse answer = explain(near);
  EXPECT_FALSE(answer.found());
  ASSERT_EQ(answer.differences_size(), 1);
  EXPECT_THAT(answer.differences(0).field(), HasSubstr("deterministic"));
  EXPECT_TRUE(NothingToDo());
}

TEST_F(CompileBrokerTest, BundlesAreBoundedAndCountedLikeOtherRequests) {
  CompileBroker::Options options;
  options.max_pending_bytes = 4096;
  Build(options, {});
  const v1::CompileRequest sample = SampleRequest(8);
  v1::PutBundleRequest put = testing::SampleBundle(sample, "a", std::string(32, 'k'));
  const auto ask = [&] {
    absl::Notification done;
    absl::Status status;
    broker_->PutBundle(put, [&](const absl::StatusOr<v1::PutBundleResponse>& answer) {
      status = answer.status();
      done.Notify();
    });
    done.WaitForNotification();
    return status;
  };
  EXPECT_EQ(ask().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(metrics_->refusals.Value("precondition"), 1);
  put.mutable_trace()->set_trace(std::string(8192, 'x'));
  EXPECT_EQ(ask().code(), absl::StatusCode::kResourceExhausted);
  put.mutable_trace()->clear_trace();
  EXPECT_EQ(ask().code(), absl::StatusCode::kInvalidArgument) << "the bytes of the first were given back";
  EXPECT_EQ(metrics_->refusals.Value("invalid"), 1);
  EXPECT_TRUE(NothingToDo());
}

TEST_F(CompileBrokerTest, CapabilitiesSayWhatThereIs) {
  const v1::GetCapabilitiesResponse capabilities = broker_->Capabilities();
  EXPECT_EQ(capabilities.compiler_fingerprint(), "test 1");
  EXPECT_EQ(capabilities.public_key(), key_.public_key());
  ASSERT_EQ(capabilities.targets_size(), 1);
  EXPECT_EQ(capabilities.targets(0).isa(), "x86-64-v3");
  EXPECT_EQ(capabilities.targets(0).vector_bytes(), 0u);
  EXPECT_THAT(capabilities.modes(),
              ElementsAre("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"));
}

}  // namespace
}  // namespace stepone::server
