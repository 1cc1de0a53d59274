// What the tests of stores share.
#ifndef STEPONE_TESTS_UNIT_CACHE_STORE_TEST_SUPPORT_H_
#define STEPONE_TESTS_UNIT_CACHE_STORE_TEST_SUPPORT_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "cache/disk_store.h"
#include "cache/store.h"
#include "proto/str_cat.h"

namespace stepone {

inline EntryId KernelId(uint64_t number) { return {Kind::kKernel, Sha256(StrCat("kernel ", number))}; }
inline EntryId ArtifactId(uint64_t number) { return {Kind::kArtifact, Sha256(StrCat("artifact ", number))}; }

// Bytes that do not compress, different for each seed.
inline std::string Noise(size_t size, uint64_t seed = 1) {
  std::string bytes(size, '\0');
  uint64_t state = seed * 0x9E3779B97F4A7C15ull + 1;
  for (char& c : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    c = static_cast<char>(state >> 32);
  }
  return bytes;
}

inline std::string BytesOf(const absl::StatusOr<Entry>& entry) {
  return entry.ok() ? *entry->bytes : StrCat("error: ", ToStd(entry.status().message()));
}

// A folder of its own for each test.
class StoreFolderTest : public testing::Test {
 protected:
  StoreFolderTest() : StoreFolderTest(testing::TempDir()) {}
  explicit StoreFolderTest(const std::string& parent) {
    std::string pattern = parent + "/store_XXXXXX";
    folder_ = mkdtemp(pattern.data()) == nullptr ? "" : pattern;
  }
  ~StoreFolderTest() override { std::filesystem::remove_all(folder_); }

  DiskStoreOptions Options(uint64_t limit = uint64_t{1} << 30) const {
    DiskStoreOptions options;
    options.path = folder_;
    options.limit_bytes = limit;
    return options;
  }

  std::unique_ptr<DiskStore> Open(DiskStoreOptions options) {
    auto store = DiskStore::Open(std::move(options));
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  std::unique_ptr<DiskStore> Open() { return Open(Options()); }

  std::string Root() const { return folder_ + "/store-v1"; }
  std::string PathOf(const EntryId& id) const {
    const std::string hex = id.key.Hex();
    return StrCat(Root(), "/", KindName(id.kind), "/", hex.substr(0, 2), "/", hex.substr(2));
  }
  // Regular files below the store's folder whose name has this prefix.
  size_t CountFiles(std::string_view prefix) const {
    size_t count = 0;
    for (const auto& file : std::filesystem::recursive_directory_iterator(Root())) {
      if (file.is_regular_file() && file.path().filename().string().starts_with(prefix)) ++count;
    }
    return count;
  }

  std::string folder_;
};

}  // namespace stepone

#endif  // STEPONE_TESTS_UNIT_CACHE_STORE_TEST_SUPPORT_H_
