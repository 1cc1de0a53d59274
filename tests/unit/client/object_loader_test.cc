#include "client/object_loader.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "proto/digest.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

// A library whose function `number` returns `value`, as bytes. Empty when it could not be built.
std::string LibraryReturning(int value) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / StrCat("object_loader_", getpid());
  std::filesystem::create_directories(folder);
  const std::string source = (folder / "number.c").string(), library = (folder / "number.so").string();
  std::ofstream(source) << "int number(void) { return " << value << "; }\n";
  const std::string command = StrCat(STEPONE_TEST_CLANG, " -shared -nostdlib -fPIC -o ", library, " ", source);
  if (std::system(command.c_str()) != 0) return "";
  std::ifstream in(library, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  std::filesystem::remove_all(folder);
  return bytes;
}

int Call(const MappedObject& object) {
  const absl::StatusOr<void*> symbol = object.Symbol("number");
  return symbol.ok() ? reinterpret_cast<int (*)()>(*symbol)() : -1;
}

// The descriptor of the first object is closed when the second one is opened, which then gets the same number.
TEST(ObjectLoaderTest, EachObjectKeepsItsOwnFunctions) {
  ObjectLoader& loader = ObjectLoader::Global();
  std::vector<std::shared_ptr<MappedObject>> objects;
  for (int value = 0; value < 5; ++value) {
    const std::string bytes = LibraryReturning(value);
    ASSERT_FALSE(bytes.empty());
    const auto object = loader.Load(Sha256(bytes), bytes);
    ASSERT_TRUE(object.ok()) << object.status();
    objects.push_back(*object);
  }
  for (int value = 0; value < 5; ++value) EXPECT_EQ(Call(*objects[value]), value);
}

TEST(ObjectLoaderTest, SameBytesAreMappedOnceAndAgainAfterTheLastUser) {
  ObjectLoader& loader = ObjectLoader::Global();
  const std::string bytes = LibraryReturning(70);
  const auto first = loader.Load(Sha256(bytes), bytes);
  auto second = loader.Load(Sha256(bytes), bytes);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->get(), second->get());
  {
    const std::string other = LibraryReturning(71);
    ASSERT_TRUE(loader.Load(Sha256(other), other).ok()) << "and unmapped at once";
  }
  const std::string third_bytes = LibraryReturning(72);
  const auto third = loader.Load(Sha256(third_bytes), third_bytes);
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(Call(**third), 72);
  EXPECT_EQ(Call(**first), 70);
}

TEST(ObjectLoaderTest, DamagedBytesAreRefused) {
  std::string bytes = LibraryReturning(80);
  const Digest digest = Sha256(bytes);
  bytes[bytes.size() / 2] ^= 1;
  EXPECT_EQ(ObjectLoader::Global().Load(digest, bytes).status().code(), absl::StatusCode::kDataLoss);
}

TEST(ObjectLoaderTest, BytesThatAreNoLibraryAreRefused) {
  const std::string bytes = "not an ELF file";
  EXPECT_EQ(ObjectLoader::Global().Load(Sha256(bytes), bytes).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace stepone::client
