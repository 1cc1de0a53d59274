#include "server/worker/crash_report.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#include "server/worker_channel.h"

namespace stepone::server {
namespace {

constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr size_t kStackBytes = 64 * 1024;

// Two buffers, so that a signal never reads one that is being written.
char stage_text[2][64] = {"start", ""};
std::atomic<int> stage_in_use{0};

// Only calls that are safe in a signal handler.
void WriteText(const char* text) { [[maybe_unused]] const ssize_t n = write(STDERR_FILENO, text, std::strlen(text)); }

void OnFatalSignal(int signal) {
  WriteText("fatal signal in stage ");
  WriteText(stage_text[stage_in_use.load(std::memory_order_acquire)]);
  WriteText("\n");
  void* frames[64];
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
  // The handler was reset when it was entered: the signal now ends the process, with the right wait status.
  raise(signal);
}

void OnOutOfMemory() {
  WriteText("out of memory in stage ");
  WriteText(stage_text[stage_in_use.load(std::memory_order_acquire)]);
  WriteText("\n");
  _exit(kOutOfMemoryExitCode);
}

}  // namespace

void InstallCrashReport() {
  // The first call loads a library, which a signal handler must not do.
  void* frame[1];
  backtrace(frame, 1);
  struct sigaction action = {};
  action.sa_handler = OnFatalSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_ONSTACK | SA_NODEFER);
  for (int signal : kFatalSignals) sigaction(signal, &action, nullptr);
  std::set_new_handler(OnOutOfMemory);
}

void SetCrashStage(std::string_view stage) {
  const int next = 1 - stage_in_use.load(std::memory_order_relaxed);
  const size_t length = std::min(stage.size(), sizeof(stage_text[0]) - 1);
  std::memcpy(stage_text[next], stage.data(), length);
  stage_text[next][length] = '\0';
  stage_in_use.store(next, std::memory_order_release);
}

AlternateStack::AlternateStack()
    : memory_(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
  stack_t stack = {};
  stack.ss_sp = memory_;
  stack.ss_size = kStackBytes;
  if (memory_ != MAP_FAILED) sigaltstack(&stack, nullptr);
}

AlternateStack::~AlternateStack() {
  if (memory_ == MAP_FAILED) return;
  stack_t off = {};
  off.ss_flags = SS_DISABLE;
  sigaltstack(&off, nullptr);
  munmap(memory_, kStackBytes);
}

}  // namespace stepone::server
