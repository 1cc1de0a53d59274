// A real process that is killed while it writes.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <set>
#include <string>

#include "cache/disk_store.h"
#include "tests/unit/cache/store_test_support.h"

namespace stepone {
namespace {

using DiskStoreCrashTest = StoreFolderTest;

// Puts entries without end and writes each number to `acknowledged` once Put has returned.
[[noreturn]] void WriteForEver(const DiskStoreOptions& options, uint64_t first, int acknowledged) {
  auto store = DiskStore::Open(options);
  if (!store.ok()) _exit(1);
  for (uint64_t i = first;; ++i) {
    const bool overwrite = i % 5 == 0;
    if (!(*store)->Put(KernelId(i), MakeBlob(Noise(2000, i)), {.overwrite = overwrite, .label = ""}).ok()) _exit(2);
    if (write(acknowledged, &i, sizeof i) != sizeof i) _exit(3);
  }
}

TEST_F(DiskStoreCrashTest, KillLosesNothingThatWasAcknowledged) {
  std::set<uint64_t> acknowledged;
  uint64_t next = 0;
  for (int run = 0; run < 8; ++run) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_ends[0]);
      WriteForEver(Options(), next, pipe_ends[1]);
    }
    close(pipe_ends[1]);
    uint64_t number = 0;
    // Killed somewhere inside of a later Put; where, depends on the scheduler.
    for (int i = 0; i < 5 + run * 3 && read(pipe_ends[0], &number, sizeof number) == sizeof number; ++i) {
      acknowledged.insert(number);
    }
    ASSERT_EQ(kill(child, SIGKILL), 0);
    while (read(pipe_ends[0], &number, sizeof number) == sizeof number) acknowledged.insert(number);
    close(pipe_ends[0]);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer failed with " << WEXITSTATUS(status);
    next = *acknowledged.rbegin() + 2;  // the one after the last may be there, unacknowledged

    const auto store = Open();
    store->WaitForSweep();
    for (uint64_t i : acknowledged) ASSERT_EQ(BytesOf(store->Get(KernelId(i))), Noise(2000, i)) << "run " << run;
    EXPECT_EQ(store->Stats()[0].quarantined, 0u);
    EXPECT_EQ(CountFiles(".tmp-"), 0u);
  }
  EXPECT_GE(acknowledged.size(), 40u);
}

}  // namespace
}  // namespace stepone
