// A file descriptor with one owner.
#ifndef STEPONE_SERVER_UNIQUE_FD_H_
#define STEPONE_SERVER_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace stepone::server {

// Closes its descriptor when it goes away. Move-only; not thread-safe.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      Reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

}  // namespace stepone::server

#endif  // STEPONE_SERVER_UNIQUE_FD_H_
