// Framed protobuf messages over a socket pair, as worker.proto describes them; used by both ends.
#ifndef STEPONE_SERVER_WORKER_CHANNEL_H_
#define STEPONE_SERVER_WORKER_CHANNEL_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"
#include "server/unique_fd.h"

namespace stepone::server {

// Descriptor number at which a worker finds its end of the connection.
inline constexpr int kWorkerChannelFd = 3;
// Exit status by which a worker says that an allocation failed.
inline constexpr int kOutOfMemoryExitCode = 77;

// One end of the connection between front process and worker. Not thread-safe; reading and writing may happen on two
// threads.
class WorkerChannel {
 public:
  // A frame that claims more than `max_message_bytes` is refused before anything is allocated for it.
  WorkerChannel(UniqueFd fd, size_t max_message_bytes);

  // Both ends of a new connection; all descriptors close on exec.
  static absl::StatusOr<std::pair<UniqueFd, UniqueFd>> CreatePair();

  // kUnavailable: the peer is gone. kDeadlineExceeded: it does not read; the stream is then unusable.
  // kInvalidArgument: `message` is larger than the peer takes; nothing was sent.
  absl::Status Write(const google::protobuf::MessageLite& message, absl::Time deadline);

  // Reads the next message. kUnavailable: the peer closed its end. kDeadlineExceeded: no complete message yet; call
  // again to go on where this call stopped. kCancelled: `wake_fd` (ignored when negative) became readable first; call
  // again. kDataLoss: the bytes are no message; the stream is then unusable.
  absl::Status Read(google::protobuf::MessageLite& message, absl::Time deadline, int wake_fd = -1);

 private:
  absl::Status WaitFor(short events, absl::Time deadline, int wake_fd);

  UniqueFd fd_;
  size_t max_message_bytes_;
  std::string in_;  // bytes of a frame that has not arrived completely
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_WORKER_CHANNEL_H_
