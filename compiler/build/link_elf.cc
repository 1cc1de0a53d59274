#include "compiler/build/link_elf.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "lld/Common/Driver.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "proto/str_cat.h"

LLD_HAS_DRIVER(elf)

namespace lld {
// Declared in lld/Common/Version.h, which Debian ships without the file that it includes.
std::string getLLDVersion();
}  // namespace lld

namespace stepone::build {
namespace {

// One thread: lld's pool would outlive the call, and one object gains nothing from it. Sections are packed: a kernel's
// file has 3 to 20 KB and not one page per segment. The largest page size keeps aarch64 hosts with 64 KB pages happy.
constexpr const char* kFlags[] = {"-shared",
                                  "-s",
                                  "--threads=1",
                                  "--build-id=none",
                                  "--hash-style=gnu",
                                  "-z",
                                  "noseparate-code",
                                  "-z",
                                  "max-page-size=65536",
                                  "-z",
                                  "norelro",
                                  "--gc-sections",
                                  "--no-mmap-output-file"};

// lld writes its output through a pipe that nobody reads meanwhile, so the whole file must fit; an ordinary output file
// would need a folder, which a sandboxed worker may not have.
constexpr size_t kPipeBytes = 1 << 20;
constexpr size_t kMaxObjectBytes = kPipeBytes * 3 / 4;

// Owns a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  std::string Path() const { return StrCat("/proc/self/fd/", fd_); }

 private:
  int fd_;
};

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// What a non-blocking descriptor has to give.
std::string ReadAvailable(int fd) {
  std::string bytes;
  char chunk[1 << 16];
  for (;;) {
    ssize_t n = read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return bytes;
    bytes.append(chunk, static_cast<size_t>(n));
  }
}

ABSL_CONST_INIT absl::Mutex linker_mutex(absl::kConstInit);
// lld may leave its state unusable after a fatal error; then nothing more is linked in this process.
bool linker_broken ABSL_GUARDED_BY(linker_mutex) = false;

absl::Status RunLinker(const std::vector<const char*>& arguments) {
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  absl::MutexLock lock(&linker_mutex);
  if (linker_broken) return absl::InternalError("lld cannot run again after an earlier failure");
  lld::Result result = lld::lldMain(arguments, llvm::nulls(), stream, {{lld::Gnu, &lld::elf::link}});
  linker_broken = !result.canRunAgain;
  if (result.retCode != 0) return absl::InternalError(StrCat("lld: ", messages));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> LinkShared(std::string_view object) {
  if (object.size() > kMaxObjectBytes) {
    return absl::InternalError(StrCat("the object has ", object.size(), " bytes, more than ", kMaxObjectBytes));
  }
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return absl::InternalError(StrCat("pipe: ", strerror(errno)));
  const Descriptor read_end(ends[0]), write_end(ends[1]);
  const Descriptor input(memfd_create("kernel.o", MFD_CLOEXEC));
  if (input.get() < 0 || !WriteAll(input.get(), object) || fcntl(write_end.get(), F_SETPIPE_SZ, kPipeBytes) < 0) {
    return absl::InternalError(StrCat("no memory file for the linker: ", strerror(errno)));
  }
  const std::string input_path = input.Path();
  const std::string output_path = write_end.Path();
  std::vector<const char*> arguments = {"ld.lld"};
  arguments.insert(arguments.end(), std::begin(kFlags), std::end(kFlags));
  arguments.insert(arguments.end(), {"-o", output_path.c_str(), input_path.c_str()});
  if (absl::Status status = RunLinker(arguments); !status.ok()) return status;
  std::string library = ReadAvailable(read_end.get());
  if (library.empty()) return absl::InternalError("lld wrote nothing");
  return library;
}

absl::Status CheckSelfContained(std::string_view library, std::string_view symbol) {
  auto file = llvm::object::ObjectFile::createELFObjectFile(
      llvm::MemoryBufferRef(llvm::StringRef(library.data(), library.size()), "kernel.so"));
  if (!file) return absl::InternalError(StrCat("no ELF file: ", llvm::toString(file.takeError())));
  const auto* elf = llvm::dyn_cast<llvm::object::ELF64LEObjectFile>(file->get());
  if (elf == nullptr) return absl::InternalError("not a 64-bit little-endian ELF file");

  auto dynamic = elf->getELFFile().dynamicEntries();
  if (!dynamic) return absl::InternalError(llvm::toString(dynamic.takeError()));
  for (const auto& entry : *dynamic) {
    if (entry.getTag() == llvm::ELF::DT_NEEDED) return absl::InternalError("the library needs another library");
  }
  std::vector<std::string> undefined, others;
  bool found = false;
  for (const llvm::object::ELFSymbolRef dynamic_symbol : elf->getDynamicSymbolIterators()) {
    llvm::Expected<llvm::StringRef> name = dynamic_symbol.getName();
    llvm::Expected<uint32_t> flags = dynamic_symbol.getFlags();
    if (!name || !flags) return absl::InternalError("unreadable symbol table");
    if (*flags & llvm::object::SymbolRef::SF_Undefined) {
      if (!name->empty()) undefined.push_back(name->str());
    } else if (*name == llvm::StringRef(symbol.data(), symbol.size())) {
      found = dynamic_symbol.getELFType() == llvm::ELF::STT_FUNC;
    } else {
      others.push_back(name->str());
    }
  }
  if (!undefined.empty()) return absl::InternalError(StrCat("undefined symbols: ", absl::StrJoin(undefined, ", ")));
  if (!others.empty()) return absl::InternalError(StrCat("unwanted exports: ", absl::StrJoin(others, ", ")));
  if (!found) return absl::InternalError(StrCat("no function ", symbol));
  return absl::OkStatus();
}

std::string LinkerVersion() {
  std::string text = lld::getLLDVersion();
  for (const char* flag : kFlags) text += StrCat(" ", flag);
  return text;
}

}  // namespace stepone::build
