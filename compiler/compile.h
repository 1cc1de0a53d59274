// The compiler as its callers see it: a pure function from a request to an artifact's parts.
//
// Nothing here reads the environment, the clock (except to time stages) or the file system outside of its own temporary
// folder; whatever can change the bytes that come out is in CompileInput or in Fingerprint(). The caller (the worker's
// loop, or a tool) brings the cache of kernels and listens to progress through the two interfaces below.
#ifndef STEPONE_COMPILER_COMPILE_H_
#define STEPONE_COMPILER_COMPILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "stepone/v1/artifact.pb.h"
#include "stepone/v1/compile_service.pb.h"
#include "stepone/v1/graph.pb.h"
#include "stepone/v1/options.pb.h"
#include "stepone/v1/target.pb.h"
#include "stepone/v1/worker.pb.h"

namespace stepone::compiler {

// One request. Plain data.
struct CompileInput {
  const v1::Graph* graph = nullptr;  // not owned; must outlive the call. REQUIRES: not null
  v1::Target target;
  v1::CodeOptions options;
  bool report = false;  // fill in Manifest.report completely; counts are filled in always
  int threads = 1;      // most threads that the call may keep busy; >= 1
};

// Objects of kernels that were compiled before. Called on the thread that runs Compile().
class KernelCache {
 public:
  virtual ~KernelCache() = default;
  // One entry per key, in the same order: the kernel's object, or an empty string when it is not held. May block for a
  // round trip to the caller's store, so ask for many keys at once. A failed look-up is a miss.
  virtual std::vector<std::string> Lookup(const std::vector<std::string>& kernel_keys) = 0;
};

// Who wants to know how far a compile is, and may call it off. Methods may be called from any thread of the compile,
// one at a time.
class CompileObserver {
 public:
  virtual ~CompileObserver() = default;
  // `stage` is a short lower-case word ("import", "fuse", "codegen", "build", "package"). `kernels_total` is 0 until
  // the number of kernels is known.
  virtual void OnStage(std::string_view stage, int kernels_done, int kernels_total) = 0;
  // True: nobody wants the result any more. Asked between stages and between kernels; Compile() then returns
  // kCancelled.
  virtual bool Cancelled() = 0;
};

// What a compile produces. Everything but signature, storage and transport.
struct CompileResult {
  v1::Manifest manifest;                        // graph_key is left empty: the caller knows it
  std::vector<v1::ObjectBytes> objects;         // every object of the manifest, once, in the manifest's order
  std::vector<v1::CompiledKernel> new_kernels;  // compiled by this call, for the kernel cache
};

// Compiles one graph. Equal inputs give equal bytes (report aside), whatever the cache held.
// Errors: kInvalidArgument (names node and rule), kUnimplemented (nothing here can run the request: train eagerly),
// kCancelled, kInternal (names the pass that failed). Reentrant: several calls may run at once.
absl::StatusOr<CompileResult> Compile(const CompileInput& input, KernelCache& kernels, CompileObserver& observer);

// Identity of compiler and toolchain; part of every key. Constant during the life of the process.
std::string Fingerprint();

// What this host can run itself, widest first; the first entry is complete (features and cache sizes included) and is
// what a client on this host sends.
std::vector<v1::Target> HostTargets();

}  // namespace stepone::compiler

#endif  // STEPONE_COMPILER_COMPILE_H_
