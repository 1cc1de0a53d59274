// Builds a server out of its parts and takes it down again in the right order.
#ifndef STEPONE_SERVER_SERVER_H_
#define STEPONE_SERVER_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/server_config.h"

namespace stepone::server {

// A running server. Thread-safe, but for Watch(): one thread.
class Server {
 public:
  // Opens the state folder (created with mode 0700), starts workers and listens. kAlreadyExists: another server has the
  // state folder or the socket. Otherwise the status says which part could not be had.
  // `environment`: what workers get, as "NAME=value".
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerConfig& config,
                                                       std::vector<std::string> environment);
  // Stop(), if that was not called.
  ~Server();

  // Addresses that clients can use, with the port that was chosen where the configuration says 0.
  const std::vector<std::string>& addresses() const;

  // Tells load balancers, refuses new compiles, lets running ones end for up to `limit`, fails the rest with
  // kUnavailable and a delay, and stops. Blocks.
  void Drain(absl::Duration limit);

  // What has to be looked at from time to time; call it about once a second. Health follows whether waiting compiles
  // find workers (ServerConfig::stall_seconds), and writes that a store could not do get into the log.
  void Watch();

  // How long nobody has asked anything; zero while a call is open or a compile runs.
  absl::Duration IdleFor() const;

  // All counters in Prometheus' text format.
  std::string MetricsText() const;

 private:
  struct Parts;
  explicit Server(std::unique_ptr<Parts> parts);
  void Stop();

  std::unique_ptr<Parts> parts_;
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_SERVER_H_
