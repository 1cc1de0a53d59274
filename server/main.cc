// stepone-server: reads the configuration, runs a server, and takes it down on a signal.
//
// SIGTERM, SIGINT: drain, then end; a second one ends at once. SIGUSR1: all counters into the log.
// Exit status: 0 after an orderly end, 1 when it could not start, 2 for a wrong configuration, 3 when another server
// has the state folder or the socket already.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/logging.h"
#include "server/server.h"
#include "server/server_config.h"
#include "spdlog/spdlog.h"

namespace {

using stepone::server::Server;
using stepone::server::ServerConfig;

std::vector<std::string> WorkerEnvironment() {
  std::vector<std::string> all;
  for (char** variable = environ; *variable != nullptr; ++variable) all.emplace_back(*variable);
  return all;
}

sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGUSR1, SIGALRM}) sigaddset(&signals, signal);
  return signals;
}

// The next signal, or 0 when a second has passed.
int NextSignal() {
  const sigset_t signals = HandledSignals();
  const timespec second = {1, 0};
  const int signal = sigtimedwait(&signals, nullptr, &second);
  return signal < 0 ? 0 : signal;
}

// Once after each burst of work: what the allocator still holds goes back to the system, so that an idle server is
// small.
void TrimWhenIdle(const Server& server, bool& trimmed) {
  const bool idle = server.IdleFor() > absl::Seconds(5);
  if (idle && !trimmed) malloc_trim(0);
  trimmed = idle;
}

void Serve(Server& server, const ServerConfig& config) {
  std::atomic<bool> drained{false};
  bool trimmed = false;
  std::thread drain;
  while (!drained) {
    const int signal = NextSignal();
    const bool idle =
        !drain.joinable() && config.idle_exit_seconds > 0 && server.IdleFor() > absl::Seconds(config.idle_exit_seconds);
    if (!drain.joinable()) TrimWhenIdle(server, trimmed);
    server.Watch();
    if (signal == SIGUSR1) {
      spdlog::info("counters:\n{}", server.MetricsText());
    } else if ((signal == SIGTERM || signal == SIGINT) && drain.joinable()) {
      spdlog::warn("second signal: ending at once");
      _exit(128 + signal);  // the workers die with this process
    } else if ((signal == SIGTERM || signal == SIGINT || idle) && !drain.joinable()) {
      spdlog::info(idle ? "nobody asked for a while: ending" : "draining");
      drain = std::thread([&server, &config, &drained] {
        server.Drain(absl::Seconds(config.drain_seconds));
        drained = true;
        kill(getpid(), SIGALRM);  // so that the loop above looks at once
      });
    }
  }
  drain.join();
}

}  // namespace

int main(int argc, char** argv) {
  const auto parsed = stepone::server::ParseServerConfig(std::vector<std::string>(argv + 1, argv + argc),
                                                         [](const char* name) { return std::getenv(name); });
  if (!parsed.ok()) {
    std::fprintf(stderr, "stepone-server: %s\n", std::string(parsed.status().message()).c_str());
    return 2;
  }
  if (parsed->exit) {
    std::fputs(parsed->output.c_str(), stdout);
    return 0;
  }
  const ServerConfig& config = parsed->config;
  stepone::server::SetUpLogging(config.log_level, config.log_format);
  // Before any thread is started, so that all of them leave these signals to NextSignal().
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);

  absl::StatusOr<std::unique_ptr<Server>> server = Server::Start(config, WorkerEnvironment());
  if (!server.ok()) {
    spdlog::error("cannot start: {}", server.status().ToString());
    return absl::IsAlreadyExists(server.status()) ? 3 : 1;
  }
  Serve(**server, config);
  return 0;
}
