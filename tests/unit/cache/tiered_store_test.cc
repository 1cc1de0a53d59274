#include "cache/tiered_store.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "cache/memory_store.h"
#include "cache/store_factory.h"
#include "cache/verifying_store.h"
#include "tests/unit/cache/store_test_support.h"

namespace stepone {
namespace {

// A far store that a test can look into and break.
class FarStore final : public Store {
 public:
  absl::StatusOr<EntryInfo> Find(const EntryId& id) override { return memory.Find(id); }
  absl::StatusOr<Entry> Get(const EntryId& id) override {
    if (down) return absl::UnavailableError("down");
    auto entry = memory.Get(id);
    if (entry.ok()) entry->tier = Tier::kFar;
    return entry;
  }
  absl::Status Put(const EntryId& id, Blob bytes, const PutOptions& options) override {
    if (down) return absl::UnavailableError("down");
    if (read_only) return absl::FailedPreconditionError("read-only");
    return memory.Put(id, std::move(bytes), options);
  }
  absl::Status ForEach(Kind, const Visitor&) override { return absl::UnimplementedError("can't be listed"); }
  std::vector<StoreStats> Stats() const override { return memory.Stats(); }

  MemoryStore memory{1 << 20};
  bool down = false;
  bool read_only = false;
};

class TieredStoreTest : public testing::Test {
 protected:
  TieredStoreTest() {
    std::vector<std::unique_ptr<Store>> tiers;
    tiers.push_back(std::make_unique<MemoryStore>(1 << 20));
    tiers.push_back(std::make_unique<FarStore>());
    near_ = static_cast<MemoryStore*>(tiers[0].get());
    far_ = static_cast<FarStore*>(tiers[1].get());
    store_ = std::make_unique<TieredStore>(std::move(tiers));
  }

  std::unique_ptr<TieredStore> store_;
  MemoryStore* near_;
  FarStore* far_;
};

TEST_F(TieredStoreTest, WritesToAllAndReadsFromTheNearest) {
  ASSERT_TRUE(store_->Put(KernelId(1), MakeBlob("x"), {.overwrite = false, .label = "l"}).ok());
  EXPECT_TRUE(near_->Find(KernelId(1)).ok());
  EXPECT_TRUE(far_->Find(KernelId(1)).ok());
  const auto entry = store_->Get(KernelId(1));
  ASSERT_TRUE(entry.ok());
  EXPECT_EQ(entry->tier, Tier::kMemory);
  EXPECT_TRUE(absl::IsNotFound(store_->Get(KernelId(2)).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Find(KernelId(2)).status()));
}

TEST_F(TieredStoreTest, FillsNearerTiersWithBytesAndLabel) {
  ASSERT_TRUE(far_->memory.Put(KernelId(1), MakeBlob("x"), {.overwrite = false, .label = "l"}).ok());
  EXPECT_EQ(store_->Get(KernelId(1))->tier, Tier::kFar);
  const auto entry = store_->Get(KernelId(1));
  EXPECT_EQ(entry->tier, Tier::kMemory);
  EXPECT_EQ(entry->label, "l");
}

TEST_F(TieredStoreTest, TheFarthestTierDecidesWhoWasFirst) {
  ASSERT_TRUE(far_->memory.Put(KernelId(1), MakeBlob("theirs")).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(store_->Put(KernelId(1), MakeBlob("ours"))));
  EXPECT_EQ(BytesOf(store_->Get(KernelId(1))), "theirs");
}

TEST_F(TieredStoreTest, ANearerTierThatIsBehindIsPutRight) {
  ASSERT_TRUE(near_->Put(KernelId(1), MakeBlob("old")).ok());
  EXPECT_TRUE(store_->Put(KernelId(1), MakeBlob("new")).ok());
  EXPECT_EQ(BytesOf(store_->Get(KernelId(1))), "new");
}

TEST_F(TieredStoreTest, OverwriteReachesAll) {
  ASSERT_TRUE(store_->Put(KernelId(1), MakeBlob("old")).ok());
  ASSERT_TRUE(store_->Put(KernelId(1), MakeBlob("new"), {.overwrite = true, .label = ""}).ok());
  EXPECT_EQ(BytesOf(near_->Get(KernelId(1))), "new");
  EXPECT_EQ(BytesOf(far_->Get(KernelId(1))), "new");
}

TEST_F(TieredStoreTest, ATierThatFailsIsPassedOver) {
  far_->down = true;
  EXPECT_TRUE(store_->Put(KernelId(1), MakeBlob("x")).ok());
  EXPECT_TRUE(store_->Get(KernelId(1)).ok());
  EXPECT_TRUE(absl::IsUnavailable(store_->Get(KernelId(2)).status())) << "nobody knows";
  far_->down = false;
  far_->read_only = true;
  EXPECT_TRUE(store_->Put(KernelId(3), MakeBlob("x")).ok());
  EXPECT_TRUE(near_->Find(KernelId(3)).ok());
}

TEST_F(TieredStoreTest, NoTierKeptIt) {
  far_->down = true;
  const absl::Status status = store_->Put(KernelId(1), MakeBlob(std::string(2 << 20, 'x')));
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

TEST_F(TieredStoreTest, ListsTheFarthestThatCanBeListed) {
  ASSERT_TRUE(store_->Put(KernelId(1), MakeBlob("x")).ok());
  int count = 0;
  EXPECT_TRUE(store_->ForEach(Kind::kKernel, [&count](const Digest&, std::string_view) { return ++count > 0; }).ok());
  EXPECT_EQ(count, 1);
}

TEST(VerifyingStoreTest, DamageIsFoundAndTheNextWriteReplacesIt) {
  auto far = std::make_unique<FarStore>();
  FarStore& inside = *far;
  VerifyingStore store(std::move(far));
  ASSERT_TRUE(store.Put(KernelId(1), MakeBlob("good"), {.overwrite = false, .label = "l"}).ok());
  EXPECT_EQ(BytesOf(store.Get(KernelId(1))), "good");
  EXPECT_EQ(store.Get(KernelId(1))->label, "l");

  std::string packed = BytesOf(inside.memory.Get(KernelId(1)));
  packed.back() ^= 1;
  ASSERT_TRUE(inside.memory.Put(KernelId(1), MakeBlob(packed), {.overwrite = true, .label = ""}).ok());
  EXPECT_TRUE(absl::IsDataLoss(store.Get(KernelId(1)).status()));
  EXPECT_EQ(store.Stats()[0].quarantined, 1u);
  EXPECT_TRUE(store.Put(KernelId(1), MakeBlob("good")).ok());
  EXPECT_EQ(BytesOf(store.Get(KernelId(1))), "good");
  EXPECT_TRUE(absl::IsAlreadyExists(store.Put(KernelId(1), MakeBlob("other")))) << "only once";
}

TEST(VerifyingStoreTest, AnEntryOfAnotherKeyIsDamage) {
  auto far = std::make_unique<FarStore>();
  FarStore& inside = *far;
  VerifyingStore store(std::move(far));
  ASSERT_TRUE(store.Put(KernelId(1), MakeBlob("one")).ok());
  ASSERT_TRUE(inside.memory.Put(KernelId(2), MakeBlob(BytesOf(inside.memory.Get(KernelId(1))))).ok());
  EXPECT_TRUE(absl::IsDataLoss(store.Get(KernelId(2)).status()));
}

using StoreFactoryTest = StoreFolderTest;

TEST_F(StoreFactoryTest, MemoryAndDisk) {
  {
    StoreConfig config;
    config.path = folder_;
    const auto opened = OpenStore(std::move(config));
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ(opened->description,
              StrCat("store: memory up to 256 MiB; disk read-write at ", folder_, " up to 10240 MiB"));
    ASSERT_TRUE(opened->store->Put(KernelId(1), MakeBlob("kept")).ok());
    EXPECT_EQ(opened->store->Get(KernelId(1))->tier, Tier::kMemory);
    EXPECT_EQ(opened->store->Stats().size(), 2u);
  }
  StoreConfig config;
  config.path = folder_;
  config.read_only = true;
  const auto opened = OpenStore(std::move(config));
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_NE(opened->description.find("read-only"), std::string::npos);
  EXPECT_EQ(opened->store->Get(KernelId(1))->tier, Tier::kDisk);
  EXPECT_EQ(opened->store->Get(KernelId(1))->tier, Tier::kMemory);
  EXPECT_TRUE(opened->store->Put(KernelId(2), MakeBlob("x")).ok()) << "memory keeps it";
}

TEST_F(StoreFactoryTest, MemoryOnlyAndFar) {
  StoreConfig config;
  config.far = std::make_unique<FarStore>();
  const auto opened = OpenStore(std::move(config));
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->description, "store: memory up to 256 MiB; no disk; far store behind");
  EXPECT_EQ(opened->store->Stats().size(), 2u);
}

TEST_F(StoreFactoryTest, AFolderThatCannotBeUsedIsAnError) {
  StoreConfig config;
  config.path = "/proc/nowhere";
  const auto opened = OpenStore(std::move(config));
  ASSERT_FALSE(opened.ok());
  EXPECT_NE(std::string(opened.status().message()).find("/proc/nowhere"), std::string::npos) << opened.status();
}

}  // namespace
}  // namespace stepone
