// One process at a time for a path.
#ifndef STEPONE_SERVER_FILE_LOCK_H_
#define STEPONE_SERVER_FILE_LOCK_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/unique_fd.h"

namespace stepone::server {

// Takes the lock of the file `path`, creating it if need be; it is given back when the descriptor closes, however the
// process ends. The file then holds the owner's process id. kAlreadyExists: another process has it (and which).
absl::StatusOr<UniqueFd> TakeFileLock(const std::string& path);

}  // namespace stepone::server

#endif  // STEPONE_SERVER_FILE_LOCK_H_
