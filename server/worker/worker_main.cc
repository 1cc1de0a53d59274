// stepone-worker: compiles jobs for one front process. Started by stepone-server, not by people.
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "CLI/CLI.hpp"
#include "server/worker/crash_report.h"
#include "server/worker/sandbox.h"
#include "server/worker/worker_loop.h"
#include "server/worker_channel.h"

namespace {

// Die with the front process, also when it is killed.
bool FollowParent(int parent_pid) {
  if (parent_pid == 0) return true;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have died before the call.
  return getppid() == parent_pid;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Compiles jobs for stepone-server, which starts it.", "stepone-worker");
  int channel_fd = stepone::server::kWorkerChannelFd;
  int parent_pid = 0;
  size_t memory_limit_mb = 4096;
  size_t max_message_mb = 512;
  stepone::server::SandboxOptions sandbox;
  app.add_option("--channel-fd", channel_fd, "connection to the server")->capture_default_str();
  app.add_option("--parent-pid", parent_pid, "die when this process is no longer the parent; 0: do not")
      ->capture_default_str();
  app.add_option("--memory-limit-mb", memory_limit_mb, "address space, MiB; 0: no limit")->capture_default_str();
  app.add_option("--max-message-mb", max_message_mb, "largest message, MiB")->capture_default_str();
  app.add_option("--scratch-dir", sandbox.scratch_dir, "the only folder that may be written to");
  CLI11_PARSE(app, argc, argv);

  if (!FollowParent(parent_pid)) return 0;
  // Whatever else the server had open is none of a worker's business.
  close_range(static_cast<unsigned>(channel_fd) + 1, ~0u, 0);
  if (!sandbox.scratch_dir.empty()) setenv("TMPDIR", sandbox.scratch_dir.c_str(), /*overwrite=*/1);
  stepone::server::InstallCrashReport();
  sandbox.memory_limit_bytes = memory_limit_mb << 20;
  auto in_force = stepone::server::EnterSandbox(sandbox);
  if (!in_force.ok()) {
    std::fprintf(stderr, "cannot confine the worker: %s\n", in_force.status().ToString().c_str());
    return 1;
  }
  stepone::server::WorkerChannel channel(stepone::server::UniqueFd(channel_fd), max_message_mb << 20);
  const int status = stepone::server::RunWorkerLoop(channel, *in_force);
  std::fflush(nullptr);
  // Nothing is worth a destructor's time: the front process waits for the slot.
  _exit(status);
}
