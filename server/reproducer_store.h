// Requests that brought a worker down or met a bug, kept for whoever will fix it.
#ifndef STEPONE_SERVER_REPRODUCER_STORE_H_
#define STEPONE_SERVER_REPRODUCER_STORE_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "proto/digest.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::server {

// A folder with one subfolder per reproducer: request.pb (the CompileRequest without its client context), report.txt
// and worker.log. The oldest go when there are too many. Thread-safe.
class ReproducerStore {
 public:
  // `directory` is created at the first write.
  ReproducerStore(std::string directory, int max_reproducers);

  // Returns the reproducer's id, which is the subfolder's name. The same key gives the same id and replaces what was
  // there.
  absl::StatusOr<std::string> Write(const Digest& key, const v1::CompileRequest& request, absl::string_view report,
                                    absl::string_view worker_log);

 private:
  void DropOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::string directory_;
  const int max_reproducers_;
  absl::Mutex mu_;  // one writer at a time
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_REPRODUCER_STORE_H_
