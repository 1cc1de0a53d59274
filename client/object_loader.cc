#include "client/object_loader.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "proto/str_cat.h"

namespace stepone::client {
namespace {

absl::Status WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return absl::InternalError(StrCat("object loader: write: ", std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// A path to the open file `fd` that no call returned before. The dynamic loader takes a path that it has seen for the
// library that it loaded from there, and descriptors' numbers are used again; so each path writes a serial number as
// separators that mean nothing, "/." for 1 and "//" for 0.
std::string UniquePath(int fd) {
  static std::atomic<uint64_t> serial{0};
  std::string path = "/proc/self/fd";
  for (uint64_t rest = ++serial; rest != 0; rest >>= 1) path += (rest & 1) != 0 ? "/." : "//";
  return StrCat(path, "/", fd);
}

// dlopen() of bytes in memory. The library keeps no name in the file system.
absl::StatusOr<void*> OpenBytes(const Digest& digest, std::string_view bytes) {
  const int fd = memfd_create(StrCat("stepone-", digest.Hex().substr(0, 16)).c_str(), MFD_CLOEXEC);
  if (fd < 0) return absl::InternalError(StrCat("object loader: memfd_create: ", std::strerror(errno)));
  absl::Status status = WriteAll(fd, bytes);
  void* handle = nullptr;
  if (status.ok()) {
    handle = dlopen(UniquePath(fd).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* reason = dlerror();
      status = absl::DataLossError(StrCat("object ", digest.Hex(), " can't be mapped: ", reason ? reason : "unknown"));
    }
  }
  close(fd);
  if (!status.ok()) return status;
  return handle;
}

}  // namespace

MappedObject::~MappedObject() { dlclose(handle_); }

absl::StatusOr<void*> MappedObject::Symbol(const std::string& symbol) const {
  void* address = dlsym(handle_, symbol.c_str());
  if (address == nullptr) {
    return absl::DataLossError(StrCat("object ", digest_.Hex(), " has no symbol \"", symbol, "\""));
  }
  return address;
}

ObjectLoader& ObjectLoader::Global() {
  static ObjectLoader& loader = *new ObjectLoader;
  return loader;
}

std::shared_ptr<MappedObject> ObjectLoader::Find(const Digest& digest) {
  absl::MutexLock lock(&mutex_);
  auto found = objects_.find(digest);
  if (found == objects_.end()) return nullptr;
  std::shared_ptr<MappedObject> object = found->second.lock();
  if (object != nullptr) ++counters_.shared;
  return object;
}

std::vector<std::shared_ptr<MappedObject>> ObjectLoader::Mapped() {
  absl::MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<MappedObject>> mapped;
  for (auto it = objects_.begin(); it != objects_.end();) {
    const auto current = it++;
    if (std::shared_ptr<MappedObject> object = current->second.lock()) {
      mapped.push_back(std::move(object));
    } else {
      objects_.erase(current);
    }
  }
  return mapped;
}

absl::StatusOr<std::shared_ptr<MappedObject>> ObjectLoader::Load(const Digest& digest, std::string_view bytes) {
  if (std::shared_ptr<MappedObject> object = Find(digest)) return object;
  if (Sha256(bytes) != digest) return absl::DataLossError(StrCat("object ", digest.Hex(), " is damaged"));
  absl::StatusOr<void*> handle = OpenBytes(digest, bytes);
  if (!handle.ok()) return handle.status();
  auto object = std::make_shared<MappedObject>(digest, *handle);
  // `object` lost a race when another thread mapped the same digest meanwhile; it is unmapped after the lock.
  absl::MutexLock lock(&mutex_);
  std::weak_ptr<MappedObject>& slot = objects_[digest];
  if (std::shared_ptr<MappedObject> winner = slot.lock()) {
    ++counters_.shared;
    return winner;
  }
  slot = object;
  ++counters_.mapped;
  return object;
}

ObjectLoader::Counters ObjectLoader::counters() const {
  absl::MutexLock lock(&mutex_);
  return counters_;
}

}  // namespace stepone::client
