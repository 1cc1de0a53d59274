#include "server/worker_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace stepone::server {
namespace {

constexpr size_t kHeaderBytes = 4;
constexpr size_t kReadStep = 256 * 1024;

void PutLength(uint32_t length, char* out) {
  for (size_t i = 0; i < kHeaderBytes; ++i) out[i] = static_cast<char>(length >> (8 * i));
}

uint32_t GetLength(const char* in) {
  uint32_t length = 0;
  for (size_t i = 0; i < kHeaderBytes; ++i) length |= static_cast<uint32_t>(static_cast<uint8_t>(in[i])) << (8 * i);
  return length;
}

}  // namespace

WorkerChannel::WorkerChannel(UniqueFd fd, size_t max_message_bytes)
    : fd_(std::move(fd)), max_message_bytes_(max_message_bytes) {
  fcntl(fd_.get(), F_SETFL, fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
}

absl::StatusOr<std::pair<UniqueFd, UniqueFd>> WorkerChannel::CreatePair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    return absl::ErrnoToStatus(errno, "cannot create a socket pair");
  }
  return std::make_pair(UniqueFd(fds[0]), UniqueFd(fds[1]));
}

absl::Status WorkerChannel::WaitFor(short events, absl::Time deadline, int wake_fd) {
  while (true) {
    int timeout_ms = -1;
    if (deadline != absl::InfiniteFuture()) {
      const absl::Duration left = std::max(deadline - absl::Now(), absl::ZeroDuration());
      // Rounded up so that the last millisecond is not spent spinning; a deadline that is past still gets one look.
      timeout_ms =
          static_cast<int>(std::min<int64_t>(absl::ToInt64Milliseconds(left + absl::Microseconds(999)), 1 << 30));
    }
    pollfd fds[2] = {{fd_.get(), events, 0}, {wake_fd, POLLIN, 0}};
    const int ready = poll(fds, 2, timeout_ms);
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (ready == 0 && absl::Now() >= deadline) return absl::DeadlineExceededError("no message in time");
    if (ready <= 0) continue;
    if (fds[1].revents != 0) return absl::CancelledError("woken up");
    return absl::OkStatus();
  }
}

absl::Status WorkerChannel::Write(const google::protobuf::MessageLite& message, absl::Time deadline) {
  const size_t size = message.ByteSizeLong();
  if (size > max_message_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat("message of ", size, " bytes; the limit is ", max_message_bytes_));
  }
  std::string frame(kHeaderBytes + size, '\0');
  PutLength(static_cast<uint32_t>(size), frame.data());
  message.SerializeToArray(frame.data() + kHeaderBytes, static_cast<int>(size));
  size_t sent = 0;
  while (sent < frame.size()) {
    const ssize_t n = send(fd_.get(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (absl::Status status = WaitFor(POLLOUT, deadline, -1); !status.ok()) return status;
    } else if (errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("peer is gone: ", strerror(errno)));
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerChannel::Read(google::protobuf::MessageLite& message, absl::Time deadline, int wake_fd) {
  while (true) {
    size_t wanted = kHeaderBytes;
    if (in_.size() >= kHeaderBytes) {
      const size_t length = GetLength(in_.data());
      if (length > max_message_bytes_) {
        return absl::DataLossError(absl::StrCat("frame of ", length, " bytes; the limit is ", max_message_bytes_));
      }
      wanted += length;
    }
    if (in_.size() >= kHeaderBytes && in_.size() == wanted) {
      const bool parsed = message.ParseFromArray(in_.data() + kHeaderBytes, static_cast<int>(wanted - kHeaderBytes));
      in_.clear();
      if (in_.capacity() > kReadStep) in_.shrink_to_fit();
      return parsed ? absl::OkStatus() : absl::DataLossError("frame holds no message");
    }
    if (absl::Status status = WaitFor(POLLIN, deadline, wake_fd); !status.ok()) return status;
    // Never past the frame, so that nothing has to be kept for the next one.
    const size_t old_size = in_.size();
    const size_t step = std::min(wanted - old_size, kReadStep);
    in_.resize(old_size + step);
    const ssize_t n = recv(fd_.get(), in_.data() + old_size, step, 0);
    in_.resize(old_size + (n > 0 ? static_cast<size_t>(n) : 0));
    if (n == 0) return absl::UnavailableError("peer closed the connection");
    if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      return absl::UnavailableError(absl::StrCat("peer is gone: ", strerror(errno)));
    }
  }
}

}  // namespace stepone::server
