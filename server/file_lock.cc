#include "server/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace stepone::server {

absl::StatusOr<UniqueFd> TakeFileLock(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrCat("cannot lock ", path));
    char owner[32] = {};
    const ssize_t n = read(fd.get(), owner, sizeof owner - 1);
    return absl::AlreadyExistsError(absl::StrCat(path, " is locked by process ", n > 0 ? owner : "?"));
  }
  const std::string self = absl::StrCat(getpid());
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), self.data(), self.size(), 0) != static_cast<ssize_t>(self.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  }
  return fd;
}

}  // namespace stepone::server
