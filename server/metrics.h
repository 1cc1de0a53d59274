// Counters of the front process, for Prometheus and for the log.
#ifndef STEPONE_SERVER_METRICS_H_
#define STEPONE_SERVER_METRICS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "prometheus/collectable.h"
#include "prometheus/counter.h"
#include "prometheus/family.h"
#include "prometheus/gauge.h"
#include "prometheus/histogram.h"
#include "prometheus/registry.h"

namespace stepone::server {

// A counter with one label out of a fixed list: whatever is not on it counts as "other", so the number of series does
// not depend on what clients send. Thread-safe.
class LabelledCounter {
 public:
  LabelledCounter(prometheus::Registry& registry, const std::string& name, const std::string& help,
                  const std::string& label, const std::vector<std::string>& values);
  void Add(absl::string_view value);
  // For tests.
  double Value(absl::string_view value) const;

 private:
  std::map<std::string, prometheus::Counter*, std::less<>> counters_;
};

// Thread-safe.
class Metrics : public prometheus::Collectable {
 public:
  Metrics();

  // Values that somebody else keeps are set by `refresh` each time the metrics are read. It must stay callable.
  void OnCollect(std::function<void(Metrics&)> refresh);
  std::vector<prometheus::MetricFamily> Collect() const override;
  // In Prometheus' text format.
  std::string Text() const;

 private:
  // Before the counters, which refer to it.
  std::shared_ptr<prometheus::Registry> registry_;

 public:
  LabelledCounter requests;        // rpc
  LabelledCounter hits;            // tier: memory, disk, remote, pin
  LabelledCounter refusals;        // reason
  LabelledCounter compiles_ended;  // result
  LabelledCounter bundles;         // result: hit, miss, incomplete, stored, known, refused
  prometheus::Counter& misses;
  prometheus::Counter& compiles_begun;
  prometheus::Counter& joins;
  prometheus::Counter& retries;
  prometheus::Counter& kernels_compiled;
  prometheus::Counter& kernels_reused;
  prometheus::Counter& reproducers;
  prometheus::Gauge& open_streams;
  prometheus::Gauge& queue_depth;
  prometheus::Gauge& queue_stalled_seconds;
  prometheus::Family<prometheus::Gauge>& slots;        // state
  prometheus::Family<prometheus::Gauge>& store_bytes;  // tier
  prometheus::Family<prometheus::Gauge>& store_entries;
  prometheus::Family<prometheus::Gauge>& store_failed_writes;
  prometheus::Family<prometheus::Gauge>& store_quarantined;
  prometheus::Histogram& compile_seconds;
  prometheus::Histogram& queue_seconds;

 private:
  mutable absl::Mutex mu_;
  std::vector<std::function<void(Metrics&)>> refreshers_ ABSL_GUARDED_BY(mu_);
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_METRICS_H_
