// The user's own server: one per user and host, started by the first process that needs it.
#ifndef STEPONE_CLIENT_LOCAL_SERVER_H_
#define STEPONE_CLIENT_LOCAL_SERVER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/client_config.h"

namespace stepone::client {

// Endpoint ("unix:<home>/server.sock") of a local server that accepts connections. Starts one when none does; of
// several processes that call this at the same time one starts it and the others wait. The server outlives its starter,
// writes to <home>/server.log and ends by itself when nobody has used it for a while.
//
// kPermissionDenied when <home> belongs to somebody else or others may enter it; kNotFound when there is no
// stepone-server; kUnavailable with the end of the log when it ended at once or does not answer in time. Thread-safe.
absl::StatusOr<std::string> EnsureLocalServer(const ClientConfig& config);

// True when the socket of `endpoint` ("unix:/path") is in a folder that only this user may enter. Who answers there is
// this user.
bool IsPrivateSocket(const std::string& endpoint);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_LOCAL_SERVER_H_
