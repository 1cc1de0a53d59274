// Where the service is and whom to trust.
#ifndef STEPONE_CLIENT_CLIENT_CONFIG_H_
#define STEPONE_CLIENT_CLIENT_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stepone::client {

// Plain data. client/README.md names the environment variable of each field.
struct ClientConfig {
  // "host:port", "unix:/path", or empty: the user's own local server, started when it does not run.
  std::string endpoint;
  // Folder of the local server: socket, keys, cache, log. Empty: DefaultHome().
  std::string home;
  // The stepone-server executable. Empty: bin/ beside this library, then the folder of this library, then PATH.
  std::string server_path;
  std::vector<std::string> server_arguments;  // passed on to a local server that has to be started

  std::vector<std::string> trusted_keys;  // raw ed25519 public keys; the local server's own is added by itself
  std::string trusted_keys_file;          // one key a line, hexadecimal or base64; "#" starts a comment
  std::string tls_ca_file;                // TLS to a TCP endpoint when set
  std::string tls_cert_file;              // with tls_key_file: the client's own certificate
  std::string tls_key_file;
  std::string token_file;  // bearer token that goes with each call

  std::string tenant;
  std::string job;
  int32_t rank = 0;
  std::string isa;  // compile for other hardware than this host: "x86-64-v3"; empty: what the host has

  int64_t connect_timeout_ms = 5'000;        // until a connection stands; longer helps only over slow networks
  int64_t request_timeout_ms = 300'000;      // a whole request with all its retries, if a step waits for it
  int64_t server_start_timeout_ms = 10'000;  // until a local server that was started answers
};

// Fields from STEPONE_* variables; kInvalidArgument names the variable that does not parse.
absl::StatusOr<ClientConfig> ConfigFromEnvironment();

// $STEPONE_HOME, else $XDG_STATE_HOME/stepone, else ~/.local/state/stepone.
std::string DefaultHome();

// The executable `name` in the folders of $PATH; empty when there is none.
std::string FindOnPath(const std::string& name);

// Raw public keys of a trusted_keys_file. kNotFound when it can't be read, kInvalidArgument naming a line that is no
// key.
absl::StatusOr<std::vector<std::string>> ReadTrustedKeys(const std::string& path);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_CLIENT_CONFIG_H_
