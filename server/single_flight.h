// One compile per key, any number of operations that wait for it.
#ifndef STEPONE_SERVER_SINGLE_FLIGHT_H_
#define STEPONE_SERVER_SINGLE_FLIGHT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cache/cache_key.h"
#include "server/event_sink.h"
#include "stepone/v1/compile_service.pb.h"

namespace stepone::server {

// What a flight ended with; shared by all who waited.
struct Landing {
  absl::Status status;
  std::shared_ptr<const v1::Artifact> artifact;  // set if the status is OK
  v1::Source source = v1::SOURCE_UNSPECIFIED;    // COMPILED, or the tier
  absl::Duration queued = absl::ZeroDuration();
  absl::Duration compiling = absl::ZeroDuration();
};

struct Flight;

// One call of Compile, from its arrival until it can't be attached to any more. Outlives its stream by a grace time.
struct Operation {
  std::string id;
  std::string tenant;
  std::string job;
  std::vector<std::string> known_objects;
  std::shared_ptr<EventSink> sink;  // null while no stream is attached
  uint64_t attachment = 0;          // counts streams, so that a timer can tell whether its stream is still the last
  std::shared_ptr<Flight> flight;   // null before it joined one and after it left
  bool joined = false;              // another operation had started the flight
  std::shared_ptr<const Landing> landing;  // set when there is an answer to give again
};
using OperationPtr = std::shared_ptr<Operation>;

// One look-up and, if need be, compile.
struct Flight {
  KeyMaterial material;
  std::shared_ptr<const v1::CompileRequest> request;  // the leader's
  std::vector<OperationPtr> waiters;
  bool listed = false;  // others may join it by key
  bool look_up = true;
  bool store = true;
  bool overwrite = false;
  bool blocking = false;   // somebody who waits can't go on
  bool submitted = false;  // the look-up missed
  bool started = false;    // a worker has begun
  bool landed = false;
  std::optional<uint64_t> task;  // the dispatcher's id
  v1::CompileEvent progress;     // last queued or stage event, for who comes late
};
using FlightPtr = std::shared_ptr<Flight>;

// The tables of operations and flights. Not thread-safe; owned by CompileBroker.
class SingleFlight {
 public:
  // Gives the operation an id that can't be guessed.
  OperationPtr Open(const v1::ClientContext& context, std::vector<std::string> known_objects,
                    std::shared_ptr<EventSink> sink);
  // Null when there is none, or when it is another tenant's.
  OperationPtr Find(const std::string& id, const std::string& tenant) const;
  OperationPtr Find(const std::string& id) const;
  // Leaves its flight and is forgotten.
  void Close(const OperationPtr& operation);

  // The listed flight for a key; null when there is none.
  FlightPtr FindFlight(const Digest& key) const;
  // Starts a flight led by `operation`. It is listed under its key if `listed` and if the key has none yet.
  FlightPtr Lead(const OperationPtr& operation, KeyMaterial material, bool listed);
  void Join(const FlightPtr& flight, const OperationPtr& operation);
  // The operation no longer waits. Returns its flight if that now has no waiter, else null.
  FlightPtr Leave(const OperationPtr& operation);
  // Nobody can join the flight any more.
  void Unlist(const FlightPtr& flight);
  // The flight is over: unlists it and returns who waited, each with its flight taken away.
  std::vector<OperationPtr> Land(const FlightPtr& flight);

  size_t flights() const { return flights_; }
  size_t operations() const { return operations_.size(); }

 private:
  absl::flat_hash_map<std::string, OperationPtr> operations_;
  absl::flat_hash_map<Digest, FlightPtr> listed_;
  size_t flights_ = 0;  // that have not landed, listed or not
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_SINGLE_FLIGHT_H_
