// What a worker does all day: read a job, compile it, answer.
#ifndef STEPONE_SERVER_WORKER_WORKER_LOOP_H_
#define STEPONE_SERVER_WORKER_WORKER_LOOP_H_

#include <string>
#include <vector>

#include "server/worker_channel.h"

namespace stepone::server {

// Says hello (fingerprint and targets of the compiler, `sandbox` as it is), then serves jobs one at a time until the
// front process closes the connection. Each job runs on a thread of its own, in the scheduling class that it asks for.
// Returns the exit status of the process: 0 after an orderly end, 1 when the connection carries no protocol.
int RunWorkerLoop(WorkerChannel& channel, const std::vector<std::string>& sandbox);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_WORKER_WORKER_LOOP_H_
