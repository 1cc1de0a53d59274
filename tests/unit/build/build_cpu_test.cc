#include "compiler/build/build_cpu.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace stepone::build {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kAdd[] =
    "__attribute__((visibility(\"default\"))) int add(int a, int b) { return a + b; }\n"
    "int hidden(int a) { return a; }\n";

std::unique_ptr<CpuBuilder> Builder(std::string_view isa) {
  auto builder = CpuBuilder::Create(isa);
  EXPECT_TRUE(builder.ok()) << builder.status();
  return *std::move(builder);
}

TEST(CpuBuilderTest, BuildsALibraryThatLoadsAndRuns) {
  BuildTimings timings;
  auto library = Builder("x86-64")->Build(kAdd, "add", &timings);
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_LT(library->size(), 6000u);
  EXPECT_GT(timings.compile_ms, 0);
  EXPECT_GT(timings.link_ms, 0);
  int fd = memfd_create("library", 0);
  ASSERT_EQ(write(fd, library->data(), library->size()), static_cast<ssize_t>(library->size()));
  void* handle = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(handle, nullptr) << dlerror();
  auto add = reinterpret_cast<int (*)(int, int)>(dlsym(handle, "add"));
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(add(20, 22), 42);
  dlclose(handle);
  close(fd);
}

TEST(CpuBuilderTest, SameTextGivesSameBytes) {
  auto builder = Builder("x86-64-v3");
  auto first = builder->Build(kAdd, "add", nullptr);
  auto second = Builder("x86-64-v3")->Build(kAdd, "add", nullptr);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(*first, *second);
}

TEST(CpuBuilderTest, CompilesForProcessorsThatThisHostMayLack) {
  for (const char* isa : {"x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver3", "znver4", "znver5", "haswell",
                          "skylake-avx512", "sapphirerapids", "neoverse-n1", "neoverse-v1", "neoverse-v2"}) {
    SCOPED_TRACE(isa);
    auto library = Builder(isa)->Build(kAdd, "add", nullptr);
    ASSERT_TRUE(library.ok()) << library.status();
    const bool arm = std::string_view(isa).starts_with("neoverse");
    EXPECT_EQ(static_cast<unsigned char>((*library)[18]), arm ? 0xb7 : 0x3e);  // e_machine
  }
}

TEST(CpuBuilderTest, UnknownProcessorIsUnimplemented) {
  auto builder = CpuBuilder::Create("pentium9");
  EXPECT_EQ(builder.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(builder.status().message()), HasSubstr("pentium9"));
}

TEST(CpuBuilderTest, ErrorCarriesClangsMessageAndPlace) {
  auto library = Builder("x86-64-v3")->Build("int f(void) {\n  return nothing;\n}\n", "f", nullptr);
  EXPECT_EQ(library.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(library.status().message()), HasSubstr("kernel.c:2:10: error: use of undeclared identifier"));
}

TEST(CpuBuilderTest, UndefinedSymbolsAreNamed) {
  auto library =
      Builder("x86-64-v3")
          ->Build("float expf(float);\n__attribute__((visibility(\"default\"))) float f(float x) { return expf(x); }\n",
                  "f", nullptr);
  EXPECT_EQ(library.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(library.status().message()), HasSubstr("undefined symbols: expf"));
}

TEST(CpuBuilderTest, OtherExportsAndAMissingSymbolAreErrors) {
  auto builder = Builder("x86-64-v3");
  auto more = builder->Build(
      "__attribute__((visibility(\"default\"))) int f(void) { return 1; }\n"
      "__attribute__((visibility(\"default\"))) int g(void) { return 2; }\n",
      "f", nullptr);
  EXPECT_THAT(std::string(more.status().message()), HasSubstr("unwanted exports: g"));
  auto none = builder->Build(kAdd, "sub", nullptr);
  EXPECT_FALSE(none.ok());
}

TEST(CpuBuilderTest, ClearingAndCopyingLoopsCallNothing) {
  auto library = Builder("x86-64-v3")
                     ->Build(
                         "__attribute__((visibility(\"default\"))) int f(char* p, const char* q, long n) {\n"
                         "  float a[4096];\n"
                         "  for (int i = 0; i < 4096; ++i) a[i] = 0;\n"
                         "  for (long i = 0; i < n; ++i) p[i] = q[i];\n"
                         "  for (long i = 0; i < n; ++i) a[i & 4095] += p[i];\n"
                         "  return (int)a[n & 4095];\n}\n",
                         "f", nullptr);
  EXPECT_TRUE(library.ok()) << library.status();
}

TEST(CpuBuilderTest, SeveralThreadsBuildAtOnce) {
  auto builder = Builder("x86-64-v3");
  auto expected = builder->Build(kAdd, "add", nullptr);
  ASSERT_TRUE(expected.ok());
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        auto library = builder->Build(kAdd, "add", nullptr);
        same[t] += library.ok() && *library == *expected;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(same, ::testing::Each(5));
}

TEST(CpuBuilderTest, WarmUpWorksOnEveryKindOfTarget) {
  for (const char* isa : {"x86-64-v3", "x86-64-v4", "neoverse-n1"}) {
    absl::Status status = Builder(isa)->WarmUp();
    EXPECT_TRUE(status.ok()) << isa << ": " << status;
  }
}

TEST(ToolchainFingerprintTest, NamesVersionsAndFlags) {
  const std::string text = ToolchainFingerprint();
  EXPECT_THAT(text, HasSubstr("clang version 19"));
  EXPECT_THAT(text, HasSubstr("LLD 19"));
  EXPECT_THAT(text, HasSubstr("-ffp-contract=off"));
  EXPECT_THAT(text, Not(HasSubstr("/home")));
}

}  // namespace
}  // namespace stepone::build
