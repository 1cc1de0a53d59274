#include "cache/disk_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cache/entry_file.h"
#include "tests/unit/cache/store_test_support.h"

namespace stepone {
namespace {

using DiskStoreTest = StoreFolderTest;

PutOptions Label(std::string label) { return {.overwrite = false, .label = std::move(label)}; }

TEST_F(DiskStoreTest, FindGetPut) {
  const auto store = Open();
  const EntryId id = ArtifactId(1);
  EXPECT_TRUE(absl::IsNotFound(store->Find(id).status()));
  EXPECT_TRUE(absl::IsNotFound(store->Get(id).status()));
  ASSERT_TRUE(store->Put(id, MakeBlob(std::string(4000, 'b')), Label("label")).ok());
  const auto info = store->Find(id);
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->size, 4000u) << "of the content, not of the compressed file";
  EXPECT_EQ(info->tier, Tier::kDisk);
  const auto entry = store->Get(id);
  ASSERT_TRUE(entry.ok()) << entry.status();
  EXPECT_EQ(*entry->bytes, std::string(4000, 'b'));
  EXPECT_EQ(entry->label, "label");
  const StoreStats stats = store->Stats()[0];
  EXPECT_EQ(stats.name, "disk");
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 1u);
  EXPECT_EQ(stats.writes, 1u);
  EXPECT_EQ(stats.entries, 1u);
  EXPECT_EQ(stats.bytes, std::filesystem::file_size(PathOf(id)));
  EXPECT_TRUE(stats.writable);
  EXPECT_EQ(stats.last_error, "");
}

TEST_F(DiskStoreTest, FirstWriterWinsUnlessAskedOtherwise) {
  const auto store = Open();
  ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("first")).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(store->Put(KernelId(1), MakeBlob("second"))));
  EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "first");
  EXPECT_TRUE(store->Put(KernelId(1), MakeBlob("third"), {.overwrite = true, .label = ""}).ok());
  EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "third");
  EXPECT_EQ(store->Stats()[0].entries, 1u);
}

TEST_F(DiskStoreTest, EntriesSurviveReopening) {
  {
    const auto store = Open();
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(store->Put(ArtifactId(i), MakeBlob(Noise(100, i)), Label(StrCat(i))).ok());
  }
  const auto store = Open();
  EXPECT_EQ(store->Stats()[0].entries, 20u);
  for (int i = 0; i < 20; ++i) {
    const auto entry = store->Get(ArtifactId(i));
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_EQ(*entry->bytes, Noise(100, i));
    EXPECT_EQ(entry->label, StrCat(i));
  }
  const SweepReport report = store->WaitForSweep();
  EXPECT_EQ(report.adopted + report.damaged + report.rows_removed + report.temporaries_removed, 0u);
}

TEST_F(DiskStoreTest, OrderOfUseSurvivesReopening) {
  const uint64_t file_bytes = EncodeEntryFile(KernelId(0), "", Noise(1000)).size();
  {
    const auto store = Open();
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(store->Put(KernelId(i), MakeBlob(Noise(1000, i))).ok());
    ASSERT_TRUE(store->Get(KernelId(0)).ok());
  }
  const auto store = Open(Options(4 * file_bytes));
  store->WaitForSweep();
  ASSERT_TRUE(store->Put(KernelId(9), MakeBlob(Noise(1000, 9))).ok());
  EXPECT_TRUE(store->Find(KernelId(0)).ok()) << "used last";
  EXPECT_FALSE(store->Find(KernelId(1)).ok()) << "oldest";
  EXPECT_EQ(store->Stats()[0].evictions, 1u);
  EXPECT_FALSE(std::filesystem::exists(PathOf(KernelId(1))));
}

TEST_F(DiskStoreTest, KeepsItsLimit) {
  const auto store = Open(Options(20000));
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(store->Put(KernelId(i), MakeBlob(Noise(1000, i))).ok());
    ASSERT_LE(store->Stats()[0].bytes, 20000u);
  }
  EXPECT_TRUE(store->Find(KernelId(99)).ok());
  EXPECT_EQ(store->Stats()[0].entries, 20000u / 1096);
  EXPECT_EQ(store->Stats()[0].evictions, 100u - 20000u / 1096);
}

TEST_F(DiskStoreTest, ALowerLimitHoldsAfterReopening) {
  {
    const auto store = Open();
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(store->Put(KernelId(i), MakeBlob(Noise(1000, i))).ok());
  }
  const auto store = Open(Options(10 * 1096));
  store->WaitForSweep();
  EXPECT_EQ(store->Stats()[0].entries, 10u);
  EXPECT_TRUE(store->Get(KernelId(49)).ok());
  EXPECT_FALSE(store->Get(KernelId(0)).ok());
}

TEST_F(DiskStoreTest, AnEntryLargerThanTheStoreIsRefused) {
  const auto store = Open(Options(1000));
  ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("small")).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store->Put(KernelId(2), MakeBlob(Noise(2000)))));
  EXPECT_TRUE(store->Get(KernelId(1)).ok()) << "nothing was evicted for it";
  EXPECT_EQ(store->Stats()[0].failed_writes, 1u);
}

TEST_F(DiskStoreTest, AnObjectMustMatchItsKey) {
  const auto store = Open();
  EXPECT_TRUE(absl::IsInvalidArgument(store->Put({Kind::kObject, Sha256("a")}, MakeBlob("b"))));
  EXPECT_TRUE(store->Put({Kind::kObject, Sha256("a")}, MakeBlob("a")).ok());
}

TEST_F(DiskStoreTest, ForEachListsLabelsNewestUseFirst) {
  const auto store = Open();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(store->Put(ArtifactId(i), MakeBlob("x"), Label(StrCat(i))).ok());
  ASSERT_TRUE(store->Put(KernelId(0), MakeBlob("x"), Label("k")).ok());
  ASSERT_TRUE(store->Get(ArtifactId(1)).ok());
  std::string labels;
  std::vector<Digest> keys;
  ASSERT_TRUE(store
                  ->ForEach(Kind::kArtifact,
                            [&](const Digest& key, std::string_view label) {
                              keys.push_back(key);
                              labels.append(label);
                              return labels.size() < 3;
                            })
                  .ok());
  EXPECT_EQ(labels, "132");
  EXPECT_EQ(keys[0], ArtifactId(1).key);
}

TEST_F(DiskStoreTest, OneProcessOwnsAFolder) {
  const auto store = Open();
  const auto second = DiskStore::Open(Options());
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status())) << second.status();
  EXPECT_NE(std::string(second.status().message()).find(folder_), std::string::npos);
}

TEST_F(DiskStoreTest, ReadersMayShareTheFolder) {
  const auto store = Open();
  ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("shared")).ok());
  DiskStoreOptions options = Options();
  options.read_only = true;
  const auto reader = Open(options);
  EXPECT_FALSE(reader->writable());
  EXPECT_EQ(reader->Find(KernelId(1))->size, 6u);
  EXPECT_EQ(BytesOf(reader->Get(KernelId(1))), "shared");
  ASSERT_TRUE(store->Put(KernelId(2), MakeBlob("later")).ok());
  EXPECT_EQ(BytesOf(reader->Get(KernelId(2))), "later");
  EXPECT_TRUE(absl::IsNotFound(reader->Get(KernelId(3)).status()));
  EXPECT_TRUE(absl::IsFailedPrecondition(reader->Put(KernelId(3), MakeBlob("x"))));
  EXPECT_TRUE(
      absl::IsUnimplemented(reader->ForEach(Kind::kKernel, [](const Digest&, std::string_view) { return true; })));
  EXPECT_EQ(reader->Stats()[0].failed_writes, 0u);
  EXPECT_FALSE(reader->Stats()[0].writable);
}

TEST_F(DiskStoreTest, NothingToReadIsAnErrorThatNamesThePath) {
  DiskStoreOptions options = Options();
  options.read_only = true;
  const auto store = DiskStore::Open(options);
  EXPECT_TRUE(absl::IsNotFound(store.status()));
  EXPECT_NE(std::string(store.status().message()).find(folder_), std::string::npos);
  options.read_only = false;
  options.path = "/proc/stepone";
  EXPECT_FALSE(DiskStore::Open(options).ok());
}

TEST_F(DiskStoreTest, ModesDoNotDependOnTheUmask) {
  const mode_t before = umask(0777);
  {
    const auto store = Open();
    EXPECT_TRUE(store->Put(KernelId(1), MakeBlob("x")).ok());
  }
  umask(before);
  struct stat info;
  ASSERT_EQ(stat(PathOf(KernelId(1)).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_EQ(stat(Root().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

// Whatever B12 does to a file: found before use, set aside, and the next write takes its place.
struct Damage {
  const char* name;
  void (*inflict)(const std::string& path, const std::string& other);
};

class DamageTest : public StoreFolderTest, public testing::WithParamInterface<Damage> {};

TEST_P(DamageTest, IsFoundAndSetAside) {
  const EntryId id = ArtifactId(1);
  const auto store = Open();
  store->WaitForSweep();  // it drops the row of a file that it sees missing, and then there is only a miss
  ASSERT_TRUE(store->Put(id, MakeBlob(Noise(3000))).ok());
  ASSERT_TRUE(store->Put(ArtifactId(2), MakeBlob(Noise(3000, 2))).ok());
  GetParam().inflict(PathOf(id), PathOf(ArtifactId(2)));

  EXPECT_EQ(store->Get(id).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(absl::IsNotFound(store->Get(id).status())) << "out of the way";
  const StoreStats stats = store->Stats()[0];
  EXPECT_EQ(stats.quarantined, 1u);
  EXPECT_NE(stats.last_error, "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Root() + "/quarantine"), {}), 1);

  ASSERT_TRUE(store->Put(id, MakeBlob(Noise(3000))).ok());
  EXPECT_EQ(BytesOf(store->Get(id)), Noise(3000));
  EXPECT_EQ(BytesOf(store->Get(ArtifactId(2))), Noise(3000, 2)) << "others are not touched";
}

TEST_P(DamageTest, IsFoundAfterALostIndex) {
  const EntryId id = ArtifactId(1);
  {
    const auto store = Open();
    ASSERT_TRUE(store->Put(id, MakeBlob(Noise(3000))).ok());
    ASSERT_TRUE(store->Put(ArtifactId(2), MakeBlob(Noise(3000, 2))).ok());
  }
  GetParam().inflict(PathOf(id), PathOf(ArtifactId(2)));
  std::filesystem::remove(Root() + "/index.sqlite");
  const auto store = Open();
  store->WaitForSweep();
  EXPECT_FALSE(store->Get(id).ok());
  EXPECT_EQ(store->Stats()[0].quarantined, 1u);
  EXPECT_EQ(BytesOf(store->Get(ArtifactId(2))), Noise(3000, 2));
  ASSERT_TRUE(store->Put(id, MakeBlob(Noise(3000))).ok());
}

void Truncate(const std::string& path, uint64_t size) { std::filesystem::resize_file(path, size); }

INSTANTIATE_TEST_SUITE_P(
    B12, DamageTest,
    testing::Values(Damage{"CutToNothing", [](const std::string& p, const std::string&) { Truncate(p, 0); }},
                    Damage{"CutToHalf", [](const std::string& p, const std::string&) { Truncate(p, 1500); }},
                    Damage{"CutByOneByte", [](const std::string& p,
                                              const std::string&) { Truncate(p, std::filesystem::file_size(p) - 1); }},
                    Damage{"OneBitFlipped",
                           [](const std::string& p, const std::string&) {
                             std::fstream file(p, std::ios::in | std::ios::out | std::ios::binary);
                             file.seekg(2000);
                             const char byte = static_cast<char>(file.get() ^ 4);
                             file.seekp(2000);
                             file.put(byte);
                           }},
                    Damage{"ExchangedWithAnother",
                           [](const std::string& p, const std::string& other) {
                             std::filesystem::copy_file(other, p, std::filesystem::copy_options::overwrite_existing);
                           }},
                    Damage{"AFolder",
                           [](const std::string& p, const std::string&) {
                             std::filesystem::remove(p);
                             std::filesystem::create_directory(p);
                             std::ofstream(p + "/inside") << "x";
                           }},
                    Damage{"AFifo",
                           [](const std::string& p, const std::string&) {
                             std::filesystem::remove(p);
                             ASSERT_EQ(mkfifo(p.c_str(), 0600), 0);
                           }},
                    Damage{"ADanglingLink",
                           [](const std::string& p, const std::string&) {
                             std::filesystem::remove(p);
                             std::filesystem::create_symlink("/nowhere", p);
                           }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(DiskStoreTest, AMissingFileIsAMissAndIsWrittenAgain) {
  const auto store = Open();
  ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("x")).ok());
  std::filesystem::remove(PathOf(KernelId(1)));
  EXPECT_TRUE(absl::IsNotFound(store->Get(KernelId(1)).status()));
  EXPECT_EQ(store->Stats()[0].entries, 0u);
  EXPECT_TRUE(store->Put(KernelId(1), MakeBlob("x")).ok());
  EXPECT_TRUE(store->Get(KernelId(1)).ok());
}

TEST_F(DiskStoreTest, AShardFolderThatVanishesIsMadeAgain) {
  const auto store = Open();
  ASSERT_TRUE(store->Put(KernelId(1), MakeBlob("x")).ok());
  std::filesystem::remove_all(std::filesystem::path(PathOf(KernelId(1))).parent_path());
  EXPECT_TRUE(store->Put(KernelId(1), MakeBlob("y"), {.overwrite = true, .label = ""}).ok());
  EXPECT_EQ(BytesOf(store->Get(KernelId(1))), "y");
}

TEST_F(DiskStoreTest, AFolderThatTheIndexDoesNotKnowIsSetAsideByPut) {
  const EntryId id = KernelId(1);
  const auto store = Open();
  store->WaitForSweep();  // from now on what has no row is not looked for
  std::filesystem::create_directories(PathOf(id));
  std::ofstream(PathOf(id) + "/inside") << "x";
  ASSERT_TRUE(absl::IsNotFound(store->Get(id).status()));

  const absl::Status status = store->Put(id, MakeBlob("x"));
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(BytesOf(store->Get(id)), "x");
  const StoreStats stats = store->Stats()[0];
  EXPECT_EQ(stats.entries, 1u);
  EXPECT_EQ(stats.quarantined, 1u);
  EXPECT_EQ(stats.failed_writes, 0u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Root() + "/quarantine"), {}), 1);
}

TEST_F(DiskStoreTest, QuarantineIsBounded) {
  const auto store = Open();
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(store->Put(KernelId(i), MakeBlob("x")).ok());
    Truncate(PathOf(KernelId(i)), 10);
    EXPECT_TRUE(absl::IsDataLoss(store->Get(KernelId(i)).status()));
  }
  EXPECT_EQ(store->Stats()[0].quarantined, 40u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(Root() + "/quarantine"), {}), 32);
}

TEST_F(DiskStoreTest, B16OrphansAndStaleTemporaryFiles) {
  {
    const auto store = Open();
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->Put(KernelId(i), MakeBlob(Noise(1000, i))).ok());
  }
  const std::string shard = std::filesystem::path(PathOf(KernelId(0))).parent_path();
  for (int i = 0; i < 1000; ++i) std::ofstream(StrCat(shard, "/.tmp-123-abc-", i)) << "half";
  std::ofstream(shard + "/not-ours.txt") << "keep";
  std::filesystem::remove(PathOf(KernelId(3)));
  // A file without a row, and one that is no entry.
  const EntryId orphan = KernelId(100);
  std::filesystem::create_directories(std::filesystem::path(PathOf(orphan)).parent_path());
  std::ofstream(PathOf(orphan), std::ios::binary) << EncodeEntryFile(orphan, "l", "orphan");
  std::filesystem::create_directories(std::filesystem::path(PathOf(KernelId(101))).parent_path());
  std::ofstream(PathOf(KernelId(101))) << "rubbish";

  const auto store = Open(Options(8 * 1096));
  const SweepReport report = store->WaitForSweep();
  EXPECT_EQ(report.temporaries_removed, 1000u);
  EXPECT_EQ(report.adopted, 1u);
  EXPECT_EQ(report.rows_removed, 1u);
  EXPECT_EQ(report.damaged, 1u);
  EXPECT_EQ(CountFiles(".tmp-"), 0u);
  EXPECT_EQ(CountFiles("not-ours"), 1u);
  EXPECT_EQ(BytesOf(store->Get(orphan)), "orphan");
  for (int i = 200; i < 220; ++i) {
    ASSERT_TRUE(store->Put(KernelId(i), MakeBlob(Noise(1000, i))).ok());
    ASSERT_LE(store->Stats()[0].bytes, 8u * 1096);
  }
  EXPECT_EQ(store->Stats()[0].failed_writes, 0u);
}

TEST_F(DiskStoreTest, ADamagedIndexIsBuiltAnew) {
  {
    const auto store = Open();
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(store->Put(ArtifactId(i), MakeBlob(Noise(100, i)), Label(StrCat(i))).ok());
  }
  std::ofstream(Root() + "/index.sqlite", std::ios::trunc) << std::string(8192, '\x5A');
  {
    const auto store = Open();
    // Found on disk before the sweep gets there, or in the new index after it.
    for (int i = 0; i < 10; ++i) EXPECT_EQ(BytesOf(store->Get(ArtifactId(i))), Noise(100, i));
    EXPECT_TRUE(absl::IsAlreadyExists(store->Put(ArtifactId(0), MakeBlob("x"))));
    store->WaitForSweep();
    EXPECT_EQ(store->Stats()[0].entries, 10u);
  }
  const auto store = Open();
  std::string labels;
  ASSERT_TRUE(store
                  ->ForEach(Kind::kArtifact,
                            [&labels](const Digest&, std::string_view label) {
                              labels.append(label);
                              return true;
                            })
                  .ok());
  EXPECT_EQ(labels.size(), 10u);
}

TEST_F(DiskStoreTest, ConcurrentWritersAndReaders) {
  const auto store = Open(Options(300 * 1096));
  std::vector<std::thread> threads;
  std::atomic<int> first_writes{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, &first_writes, t] {
      for (uint64_t i = 0; i < 150; ++i) {
        const uint64_t number = (i * 7 + static_cast<uint64_t>(t)) % 100;
        const auto entry = store->Get(KernelId(number));
        if (entry.ok()) {
          EXPECT_EQ(*entry->bytes, Noise(1000, number));
        } else {
          EXPECT_TRUE(absl::IsNotFound(entry.status())) << entry.status();
          const absl::Status status = store->Put(KernelId(number), MakeBlob(Noise(1000, number)));
          EXPECT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
          if (status.ok()) ++first_writes;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(first_writes, 100) << "one writer wins each key";
  EXPECT_EQ(store->Stats()[0].entries, 100u);
  EXPECT_EQ(store->Stats()[0].quarantined, 0u);
}

TEST_F(DiskStoreTest, ConcurrentOverwritesEvictionsAndReads) {
  const auto store = Open(Options(20 * 1096));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&store, t] {
      for (uint64_t i = 0; i < 100; ++i) {
        const uint64_t number = (i + static_cast<uint64_t>(t) * 13) % 40;
        if (t % 2 == 0) {
          EXPECT_TRUE(
              store->Put(KernelId(number), MakeBlob(Noise(1000, number)), {.overwrite = true, .label = ""}).ok());
        } else if (const auto entry = store->Get(KernelId(number)); entry.ok()) {
          EXPECT_EQ(*entry->bytes, Noise(1000, number));
        } else {
          EXPECT_TRUE(absl::IsNotFound(entry.status())) << entry.status();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const StoreStats stats = store->Stats()[0];
  EXPECT_EQ(stats.quarantined, 0u);
  EXPECT_EQ(stats.failed_reads, 0u);
  // What the index says is what there is.
  uint64_t files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(Root() + "/kernel"))
    files += file.is_regular_file();
  EXPECT_EQ(files, stats.entries);
}

double MillisecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// In memory where that is possible: making so many names takes longer than all that is tested here.
class LargeDiskStoreTest : public StoreFolderTest {
 protected:
  LargeDiskStoreTest()
      : StoreFolderTest(access("/dev/shm", W_OK) == 0 ? std::string("/dev/shm") : testing::TempDir()) {}
};

TEST_F(LargeDiskStoreTest, ReopensWithManyEntries) {
  constexpr int kEntries = 100000;
  constexpr int kMissing = 1000;
  std::filesystem::create_directories(Root());
  {
    auto index = DiskIndex::Open(Root() + "/index.sqlite");
    ASSERT_TRUE(index.ok()) << index.status();
    std::vector<IndexRow> rows;
    for (int i = 0; i < kEntries; ++i) {
      rows.push_back({ArtifactId(i), 4096, 4000, static_cast<uint64_t>(i + 1), std::string(88, 'l')});
    }
    ASSERT_TRUE((*index)->PutAll(rows).ok());
  }
  // Links to a few files: opening and sweeping look at names only. File systems limit the links to one file.
  for (int i = 0; i < 256; ++i) {
    std::filesystem::create_directories(StrCat(Root(), "/artifact/", absl::Hex(i, absl::kZeroPad2)));
  }
  for (int i = kMissing; i < kEntries; ++i) {
    const std::string original = StrCat(Root(), "/original-", i / 20000);
    if (i == kMissing || i % 20000 == 0) std::ofstream(original) << std::string(4096, 'x');
    std::filesystem::create_hard_link(original, PathOf(ArtifactId(i)));
  }
  const auto start = std::chrono::steady_clock::now();
  const auto store = Open();
  const double opened_ms = MillisecondsSince(start);
  const SweepReport report = store->WaitForSweep();
  std::printf("[ measured ] %d entries: open after %.0f ms, swept after %.0f ms\n", kEntries, opened_ms,
              MillisecondsSince(start));
  EXPECT_EQ(report.rows_removed, static_cast<uint64_t>(kMissing));
  EXPECT_EQ(report.adopted, 0u);
  EXPECT_EQ(store->Stats()[0].entries, static_cast<uint64_t>(kEntries - kMissing));
}

}  // namespace
}  // namespace stepone
