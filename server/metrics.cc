#include "server/metrics.h"

#include <utility>

#include "prometheus/text_serializer.h"

namespace stepone::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;

prometheus::Counter& Counter(prometheus::Registry& registry, const std::string& name, const std::string& help) {
  return BuildCounter().Name(name).Help(help).Register(registry).Add({});
}

prometheus::Family<prometheus::Gauge>& Gauges(prometheus::Registry& registry, const std::string& name,
                                              const std::string& help) {
  return BuildGauge().Name(name).Help(help).Register(registry);
}

prometheus::Histogram& Seconds(prometheus::Registry& registry, const std::string& name, const std::string& help) {
  return BuildHistogram().Name(name).Help(help).Register(registry).Add(
      {}, prometheus::Histogram::BucketBoundaries{0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300});
}

}  // namespace

LabelledCounter::LabelledCounter(prometheus::Registry& registry, const std::string& name, const std::string& help,
                                 const std::string& label, const std::vector<std::string>& values) {
  auto& family = BuildCounter().Name(name).Help(help).Register(registry);
  for (const std::string& value : values) counters_[value] = &family.Add({{label, value}});
  counters_["other"] = &family.Add({{label, "other"}});
}

void LabelledCounter::Add(absl::string_view value) {
  auto found = counters_.find(std::string(value));
  if (found == counters_.end()) found = counters_.find("other");
  found->second->Increment();
}

double LabelledCounter::Value(absl::string_view value) const { return counters_.at(std::string(value))->Value(); }

Metrics::Metrics()
    : registry_(std::make_shared<prometheus::Registry>()),
      requests(*registry_, "stepone_requests_total", "Calls received.", "rpc",
               {"GetCapabilities", "Find", "Compile", "Attach", "Cancel", "Fetch", "Explain", "FindBundle", "PutBundle",
                "ExplainBundle"}),
      hits(*registry_, "stepone_hits_total", "Artifacts handed out without a compile.", "tier",
           {"pin", "memory", "disk", "remote"}),
      refusals(*registry_, "stepone_refusals_total", "Requests turned away.", "reason",
               {"invalid", "unimplemented", "queue_full", "overload", "draining", "unauthenticated", "permission",
                "remembered_failure", "deadline", "precondition"}),
      compiles_ended(
          *registry_, "stepone_compiles_ended_total", "Attempts at a compile that ended.", "result",
          {"ok", "error", "crashed", "killed", "out_of_memory", "timed_out", "bad_output", "cancelled", "not_started"}),
      bundles(*registry_, "stepone_bundles_total", "Look-ups and reports of what captured graphs became.", "result",
              {"hit", "miss", "incomplete", "stored", "known", "refused"}),
      misses(Counter(*registry_, "stepone_misses_total", "Requests that no store could answer.")),
      compiles_begun(Counter(*registry_, "stepone_compiles_begun_total", "Attempts at a compile given to a worker.")),
      joins(Counter(*registry_, "stepone_joins_total", "Requests that joined a running compile of the same key.")),
      retries(Counter(*registry_, "stepone_retries_total", "Compiles repeated because a worker was lost.")),
      kernels_compiled(Counter(*registry_, "stepone_kernels_compiled_total", "Kernels compiled.")),
      kernels_reused(
          Counter(*registry_, "stepone_kernels_reused_total", "Kernels that workers asked for and that were held.")),
      reproducers(Counter(*registry_, "stepone_reproducers_total", "Requests written to the crash folder.")),
      open_streams(Gauges(*registry_, "stepone_open_streams", "Streams that are open now.").Add({})),
      queue_depth(Gauges(*registry_, "stepone_queue_depth", "Jobs that wait for a worker now.").Add({})),
      queue_stalled_seconds(Gauges(*registry_, "stepone_queue_stalled_seconds",
                                   "How long jobs have waited although not every worker is busy.")
                                .Add({})),
      slots(Gauges(*registry_, "stepone_worker_slots", "Worker slots by state.")),
      store_bytes(Gauges(*registry_, "stepone_store_bytes", "Bytes held by tier.")),
      store_entries(Gauges(*registry_, "stepone_store_entries", "Entries held by tier.")),
      store_failed_writes(
          Gauges(*registry_, "stepone_store_failed_writes", "Writes that failed since the start, by tier.")),
      store_quarantined(
          Gauges(*registry_, "stepone_store_quarantined", "Damaged entries set aside since the start, by tier.")),
      compile_seconds(Seconds(*registry_, "stepone_compile_seconds", "Time from dispatch to result.")),
      queue_seconds(Seconds(*registry_, "stepone_queue_seconds", "Time from admission to dispatch.")) {}

void Metrics::OnCollect(std::function<void(Metrics&)> refresh) {
  absl::MutexLock lock(&mu_);
  refreshers_.push_back(std::move(refresh));
}

std::vector<prometheus::MetricFamily> Metrics::Collect() const {
  std::vector<std::function<void(Metrics&)>> refreshers;
  {
    absl::MutexLock lock(&mu_);
    refreshers = refreshers_;
  }
  // Reading is what brings the borrowed values up to date; nothing else of this object changes.
  for (const auto& refresh : refreshers) refresh(const_cast<Metrics&>(*this));
  return registry_->Collect();
}

std::string Metrics::Text() const { return prometheus::TextSerializer().Serialize(Collect()); }

}  // namespace stepone::server
