// What the disk store does when the file system fails.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "cache/disk_store.h"
#include "tests/testlib/faulty_file_env.h"
#include "tests/unit/cache/store_test_support.h"

namespace stepone {
namespace {

using testing_support::Fault;
using testing_support::FaultyFileEnv;
using testing_support::FileOp;

const PutOptions kOverwrite{.overwrite = true, .label = ""};

class DiskStoreFaultTest : public StoreFolderTest {
 protected:
  std::unique_ptr<DiskStore> OpenFaulty(uint64_t limit = uint64_t{1} << 30) {
    DiskStoreOptions options = Options(limit);
    options.env = &env_;
    auto store = Open(options);
    if (store != nullptr) store->WaitForSweep();
    return store;
  }

  FaultyFileEnv env_;
};

// B16: dies at every step of a publish; what was acknowledged is there, what was not is whole or absent.
TEST_F(DiskStoreFaultTest, B16DeathAtEveryStepOfAPublish) {
  uint64_t points = 0;
  for (uint64_t at = 0; at == 0 || at < points; ++at) {
    FaultyFileEnv env;
    uint64_t before;
    bool acknowledged = false;
    {
      DiskStoreOptions options = Options();
      options.env = &env;
      auto store = Open(options);
      ASSERT_NE(store, nullptr);
      store->WaitForSweep();
      ASSERT_TRUE(store->Put(KernelId(1), MakeBlob(Noise(500, at)), kOverwrite).ok());
      before = env.points();
      if (at == 0) {
        // A dry run counts the points: a new entry in a new folder, and one that replaces another.
        ASSERT_TRUE(store->Put(KernelId(2), MakeBlob(Noise(500, 2))).ok());
        ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("replaced"), kOverwrite).ok());
        points = env.points() - before;
        ASSERT_GE(points, 14u);
        store.reset();
        std::filesystem::remove_all(folder_);
        continue;
      }
      env.CrashAt(before + at - 1);
      acknowledged = store->Put(KernelId(2), MakeBlob(Noise(500, 2))).ok();
      store->Put(KernelId(1), MakeBlob("replaced"), kOverwrite).IgnoreError();
      EXPECT_TRUE(env.crashed());
    }
    const auto store = Open();
    store->WaitForSweep();
    const auto first = store->Get(KernelId(1));
    ASSERT_TRUE(first.ok()) << "point " << at << ": " << first.status();
    EXPECT_TRUE(*first->bytes == Noise(500, at) || *first->bytes == "replaced") << at;
    const auto second = store->Get(KernelId(2));
    if (acknowledged) {
      EXPECT_TRUE(second.ok()) << at;
    }
    if (second.ok()) {
      EXPECT_EQ(*second->bytes, Noise(500, 2)) << at;
    }
    EXPECT_EQ(store->Stats()[0].quarantined, 0u) << at;
    EXPECT_EQ(CountFiles(".tmp-"), 0u) << at;
    EXPECT_TRUE(store->Put(KernelId(3), MakeBlob("writes go on"), kOverwrite).ok()) << at;
    std::filesystem::remove_all(folder_);
  }
}

TEST_F(DiskStoreFaultTest, B16DeathAtEveryStepOfAnEviction) {
  for (uint64_t at = 0; at < 4; ++at) {
    FaultyFileEnv env;
    {
      DiskStoreOptions options = Options(3 * 596);
      options.env = &env;
      auto store = Open(options);
      store->WaitForSweep();
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(store->Put(KernelId(i), MakeBlob(Noise(500, i))).ok());
      env.CrashAt(env.points() + at);
      EXPECT_FALSE(store->Put(KernelId(3), MakeBlob(Noise(500, 3))).ok());
    }
    const auto store = Open(Options(3 * 596));
    store->WaitForSweep();
    EXPECT_LE(store->Stats()[0].bytes, 3u * 596);
    EXPECT_EQ(BytesOf(store->Get(KernelId(2))), Noise(500, 2));
    EXPECT_TRUE(store->Put(KernelId(3), MakeBlob(Noise(500, 3)), kOverwrite).ok());
    std::filesystem::remove_all(folder_);
  }
}

struct WriteFault {
  const char* name;
  Fault fault;
  absl::StatusCode code;
};

class WriteFaultTest : public DiskStoreFaultTest, public testing::WithParamInterface<WriteFault> {};

TEST_P(WriteFaultTest, IsCountedAndLeavesNothingBehind) {
  const auto store = OpenFaulty();
  ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("before")).ok());
  env_.Add(GetParam().fault);
  EXPECT_EQ(store->Put(KernelId(2), MakeBlob(Noise(1000))).code(), GetParam().code);
  EXPECT_EQ(store->Stats()[0].failed_writes, 1u);
  EXPECT_NE(store->Stats()[0].last_error, "");
  EXPECT_TRUE(absl::IsNotFound(store->Get(KernelId(2)).status())) << "no partial entry";
  EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "before") << "serving goes on";
  EXPECT_EQ(CountFiles(".tmp-"), 0u);
  env_.Clear();
  EXPECT_TRUE(store->Put(KernelId(2), MakeBlob(Noise(1000))).ok()) << "and storing resumes by itself";
  EXPECT_EQ(BytesOf(store->Get(KernelId(2))), Noise(1000));
}

INSTANTIATE_TEST_SUITE_P(
    All, WriteFaultTest,
    testing::Values(
        WriteFault{"NoSpaceAtOnce", {.op = FileOp::kWrite, .error = ENOSPC}, absl::StatusCode::kResourceExhausted},
        WriteFault{"NoSpaceHalfWay",
                   {.op = FileOp::kWrite, .error = ENOSPC, .torn_at = 500},
                   absl::StatusCode::kResourceExhausted},
        WriteFault{"Quota", {.op = FileOp::kWrite, .error = EDQUOT}, absl::StatusCode::kResourceExhausted},
        WriteFault{"IoError", {.op = FileOp::kWrite, .error = EIO, .torn_at = 10}, absl::StatusCode::kUnavailable},
        WriteFault{"Rename", {.op = FileOp::kRename, .error = EIO}, absl::StatusCode::kUnavailable},
        WriteFault{"Refused", {.op = FileOp::kWrite, .error = EACCES}, absl::StatusCode::kUnavailable},
        WriteFault{"MakeFolder", {.op = FileOp::kMakeFolder, .error = EACCES}, absl::StatusCode::kUnavailable}),
    [](const auto& info) { return std::string(info.param.name); });

// B15: a rename that happens but reports an error, or a folder that can't be synced, is a failed write; the file that
// is there is whole.
TEST_F(DiskStoreFaultTest, B15ARenameThatHappensButReportsAnError) {
  for (const Fault& fault : {Fault{.op = FileOp::kRename, .error = EIO, .after_effect = true},
                             Fault{.op = FileOp::kSync, .error = EIO, .path_contains = "kernel/"}}) {
    {
      const auto store = OpenFaulty();
      env_.Add(fault);
      EXPECT_TRUE(absl::IsUnavailable(store->Put(KernelId(1), MakeBlob("there all the same"))));
      EXPECT_EQ(store->Stats()[0].failed_writes, 1u);
      EXPECT_TRUE(store->Put(KernelId(2), MakeBlob("x")).ok() == false);
      env_.Clear();
      EXPECT_TRUE(store->Put(KernelId(2), MakeBlob("x")).ok());
    }
    const auto store = OpenFaulty();
    EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "there all the same");
    std::filesystem::remove_all(folder_);
  }
}

TEST_F(DiskStoreFaultTest, B15StaleHandlesAreReadAgain) {
  const auto store = OpenFaulty();
  ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("x")).ok());
  env_.Add({.op = FileOp::kRead, .error = ESTALE, .times = 1});
  EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "x");
  EXPECT_EQ(store->Stats()[0].failed_reads, 0u);
}

TEST_F(DiskStoreFaultTest, ReadErrorsAreCountedMissesAndKeepTheEntry) {
  const auto store = OpenFaulty();
  ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("x")).ok());
  for (int error : {EIO, EACCES}) {
    env_.Add({.op = FileOp::kRead, .error = error, .times = 2});
    EXPECT_TRUE(absl::IsUnavailable(store->Get(KernelId(1)).status()));
    env_.Clear();
  }
  EXPECT_EQ(store->Stats()[0].failed_reads, 2u);
  EXPECT_EQ(store->Stats()[0].quarantined, 0u) << "an I/O error is no proof of damage";
  EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "x");
}

TEST_F(DiskStoreFaultTest, ADamagedFileThatCannotBeMovedIsRemoved) {
  const auto store = OpenFaulty();
  ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("x")).ok());
  std::filesystem::resize_file(PathOf(KernelId(1)), 5);
  env_.Add({.op = FileOp::kRename, .error = EBUSY, .times = 1});
  EXPECT_TRUE(absl::IsDataLoss(store->Get(KernelId(1)).status()));
  EXPECT_TRUE(store->Put(KernelId(1), MakeBlob("x")).ok());
  EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "x");
}

// B17: the limit is above what the device holds; eviction goes by what is really free.
TEST_F(DiskStoreFaultTest, B17EvictsByFreeSpaceAndInodes) {
  const auto store = OpenFaulty();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(store->Put(KernelId(i), MakeBlob(Noise(1000, i))).ok());
  EXPECT_EQ(store->Stats()[0].evictions, 0u);

  // Somebody else took all the space: everything goes, and the write is tried all the same.
  env_.SetFreeSpace(FreeSpace{.free_bytes = 100, .total_bytes = 64 << 20, .free_inodes = 1000});
  EXPECT_TRUE(store->Put(KernelId(100), MakeBlob(Noise(1000, 100))).ok());
  EXPECT_EQ(store->Stats()[0].evictions, 20u);
  EXPECT_EQ(store->Stats()[0].entries, 1u);

  env_.SetFreeSpace(FreeSpace{.free_bytes = 32 << 20, .total_bytes = 64 << 20, .free_inodes = 3});
  EXPECT_TRUE(store->Put(KernelId(101), MakeBlob(Noise(1000, 101))).ok());
  EXPECT_EQ(store->Stats()[0].entries, 1u) << "inodes count too";

  // The space is back: storing without evicting.
  env_.SetFreeSpace(FreeSpace{.free_bytes = 32 << 20, .total_bytes = 64 << 20, .free_inodes = UINT64_MAX});
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(store->Put(KernelId(i), MakeBlob(Noise(1000, i))).ok());
  EXPECT_EQ(store->Stats()[0].entries, 6u);
  EXPECT_EQ(store->Stats()[0].failed_writes, 0u);
}

// B18: a folder that can't be written is opened read-only, says why, serves hits, and refuses writes without counting
// each of them as a failure.
TEST_F(DiskStoreFaultTest, B18AFolderThatCannotBeWritten) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("hit")).ok());
  }
  env_.Add({.op = FileOp::kLock, .error = EROFS});
  const auto store = OpenFaulty();
  ASSERT_NE(store, nullptr);
  EXPECT_FALSE(store->writable());
  EXPECT_NE(store->read_only_reason().find(folder_), std::string::npos);
  EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "hit");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(absl::IsFailedPrecondition(store->Put(KernelId(2), MakeBlob("x"))));
  EXPECT_EQ(store->Stats()[0].failed_writes, 0u);
  std::filesystem::resize_file(PathOf(KernelId(1)), 5);
  EXPECT_TRUE(absl::IsDataLoss(store->Get(KernelId(1)).status()));
  EXPECT_TRUE(std::filesystem::exists(PathOf(KernelId(1)))) << "read-only means read-only";
}

TEST_F(DiskStoreFaultTest, B18OneShardThatRefusesAccess) {
  const auto store = OpenFaulty();
  const std::string hex = KernelId(1).key.Hex();
  const std::string shard = StrCat("kernel/", hex.substr(0, 2));
  for (FileOp op : {FileOp::kWrite, FileOp::kRead, FileOp::kMakeFolder, FileOp::kSync}) {
    env_.Add({.op = op, .error = EACCES, .path_contains = shard});
  }
  EXPECT_TRUE(absl::IsUnavailable(store->Put(KernelId(1), MakeBlob("x"))));
  EXPECT_EQ(store->Stats()[0].failed_writes, 1u);
  ASSERT_NE(KernelId(2).key.bytes[0], KernelId(1).key.bytes[0]);
  EXPECT_TRUE(store->Put(KernelId(2), MakeBlob("x")).ok()) << "the others work";
}

TEST_F(DiskStoreFaultTest, RowsOfAFolderThatCannotBeSeenAreKept) {
  {
    const auto store = Open();
    ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("x")).ok());
  }
  env_.Add({.op = FileOp::kSize, .error = EIO});
  env_.Add({.op = FileOp::kList, .error = EIO, .path_contains = "kernel/"});
  const auto store = OpenFaulty();
  EXPECT_EQ(store->WaitForSweep().rows_removed, 0u);
  env_.Clear();
  EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "x");
}

}  // namespace
}  // namespace stepone
