#include "tests/unit/codegen/kernel_runner.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "compiler/build/build_cpu.h"
#include "gtest/gtest.h"
#include "proto/str_cat.h"
#include "tests/testlib/kernel_interpreter.h"

namespace stepone::codegen {
namespace {

using ir::DType;

// Bytes whose end lies at the end of a page, with nothing mapped behind; the page before is not mapped either.
class GuardedMemory {
 public:
  explicit GuardedMemory(const std::string& bytes) : size_(bytes.size()) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t inside = (size_ + page) / page * page;
    total_ = inside + 2 * page;
    base_ = static_cast<char*>(mmap(nullptr, total_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + page, inside, PROT_READ | PROT_WRITE);
    data_ = base_ + page + inside - size_;
    std::memcpy(data_, bytes.data(), size_);
  }
  ~GuardedMemory() { munmap(base_, total_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* data() const { return data_; }
  std::string Contents() const { return std::string(data_, size_); }

 private:
  size_t size_, total_;
  char* base_;
  char* data_;
};

build::CpuBuilder& Builder() {
  static build::CpuBuilder* const kBuilder = build::CpuBuilder::Create("x86-64-v3").value().release();
  return *kBuilder;
}

bool Near(double a, double b, const Tolerance& tolerance) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  return std::abs(a - b) <= tolerance.relative * std::max({std::abs(a), std::abs(b), tolerance.scale});
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedKernel>> LoadedKernel::Load(const loops::Kernel& kernel, const CpuTarget& target) {
  absl::StatusOr<CpuSource> source = GenerateCpu(kernel, target);
  if (!source.ok()) return source.status();
  absl::StatusOr<std::string> library = Builder().Build(source->text, source->symbol, nullptr);
  if (!library.ok()) return absl::InternalError(StrCat(library.status().ToString(), "\n", source->text));
  int fd = memfd_create("kernel", 0);
  if (write(fd, library->data(), library->size()) != static_cast<ssize_t>(library->size())) {
    return absl::InternalError("write");
  }
  auto loaded = std::make_unique<LoadedKernel>();
  loaded->source_ = *std::move(source);
  loaded->file_ = fd;
  loaded->handle_ = dlopen(StrCat("/proc/self/fd/", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded->handle_ == nullptr) return absl::InternalError(dlerror());
  loaded->function_ = reinterpret_cast<stepone_kernel_fn>(dlsym(loaded->handle_, loaded->source_.symbol.c_str()));
  return loaded;
}

LoadedKernel::~LoadedKernel() {
  if (handle_ != nullptr) dlclose(handle_);
  if (file_ >= 0) close(file_);
}

int32_t LoadedKernel::Run(std::vector<std::string>& buffers, int64_t step, bool backwards) const {
  std::vector<std::unique_ptr<GuardedMemory>> memory;
  std::vector<void*> pointers;
  for (const std::string& bytes : buffers) {
    memory.push_back(std::make_unique<GuardedMemory>(bytes));
    pointers.push_back(memory.back()->data());
  }
  std::vector<int64_t> begins;
  for (int64_t begin = 0; begin < source_.units; begin += step) begins.push_back(begin);
  if (backwards) std::reverse(begins.begin(), begins.end());
  int32_t status = 0;
  for (int64_t begin : begins) {
    status = function_(pointers.data(), nullptr, begin, std::min(source_.units, begin + step));
    if (status != 0) break;
  }
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i] = memory[i]->Contents();
  return status;
}

double ElementAt(const std::string& bytes, DType type, int64_t i) {
  const auto read = [&](auto zero) {
    std::memcpy(&zero, bytes.data() + i * static_cast<int64_t>(sizeof zero), sizeof zero);
    return zero;
  };
  switch (type) {
    case DType::kFloat64:
      return read(double{});
    case DType::kFloat32:
      return read(float{});
    case DType::kFloat16:
      return static_cast<double>(read(_Float16{}));
    case DType::kBFloat16: {
      const uint32_t bits = uint32_t{read(uint16_t{})} << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }
    case DType::kInt64:
      return static_cast<double>(read(int64_t{}));
    case DType::kInt32:
      return read(int32_t{});
    case DType::kInt16:
      return read(int16_t{});
    case DType::kInt8:
      return read(int8_t{});
    default:
      return read(uint8_t{});
  }
}

std::string RandomElements(DType type, int64_t count, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 1);
  std::string bytes;
  const auto append = [&](auto value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  for (int64_t i = 0; i < count; ++i) {
    const float x = normal(generator);
    const int n = static_cast<int>(generator() % 19) - 9;
    switch (type) {
      case DType::kFloat64:
        append(static_cast<double>(x));
        break;
      case DType::kFloat32:
        append(x);
        break;
      case DType::kFloat16:
        append(static_cast<_Float16>(x));
        break;
      case DType::kBFloat16: {
        uint32_t bits;
        std::memcpy(&bits, &x, sizeof bits);
        append(static_cast<uint16_t>(bits >> 16));
        break;
      }
      case DType::kInt64:
        append(static_cast<int64_t>(n));
        break;
      case DType::kInt32:
        append(static_cast<int32_t>(n));
        break;
      case DType::kInt16:
        append(static_cast<int16_t>(n));
        break;
      case DType::kInt8:
        append(static_cast<int8_t>(n));
        break;
      case DType::kUInt8:
        append(static_cast<uint8_t>(std::abs(n)));
        break;
      default:
        append(static_cast<uint8_t>(n > 0));
        break;
    }
  }
  return bytes;
}

void ExpectLikeInterpreter(const loops::Kernel& kernel, const std::vector<std::string>& buffers,
                           const Tolerance& tolerance) {
  std::vector<std::string> expected = buffers;
  const absl::Status interpreted =
      testlib::RunKernel(kernel, std::vector<std::span<char>>(expected.begin(), expected.end()));
  const int32_t expected_status = interpreted.ok() ? 0 : absl::IsOutOfRange(interpreted) ? 1 : 2;
  ASSERT_FALSE(absl::IsInternal(interpreted)) << interpreted << "\n" << loops::ToString(kernel);
  for (int64_t vector_bytes : {16, 32, 64}) {
    SCOPED_TRACE(StrCat(vector_bytes, " byte vectors"));
    auto loaded = LoadedKernel::Load(kernel, {.vector_bytes = vector_bytes});
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    std::vector<std::string> actual = buffers;
    ASSERT_EQ((*loaded)->Run(actual), expected_status) << loops::ToString(kernel) << (*loaded)->source().text;
    if (expected_status != 0) continue;
    for (size_t b = 0; b < buffers.size(); ++b) {
      const DType type = kernel.buffers[b].dtype;
      const int64_t count = static_cast<int64_t>(buffers[b].size()) / ir::ByteSize(type);
      for (int64_t i = 0; i < count; ++i) {
        const double want = ElementAt(expected[b], type, i), got = ElementAt(actual[b], type, i);
        const bool same = ir::IsFloat(type) ? Near(want, got, tolerance) : want == got;
        ASSERT_TRUE(same) << "buffer " << b << " element " << i << ": " << want << " expected, " << got << "\n"
                          << loops::ToString(kernel) << (*loaded)->source().text;
      }
    }
    for (int64_t step : {int64_t{1}, int64_t{3}}) {
      std::vector<std::string> split = buffers;
      ASSERT_EQ((*loaded)->Run(split, step, true), 0);
      ASSERT_TRUE(split == actual) << "units in steps of " << step << " give other bits\n" << (*loaded)->source().text;
    }
  }
}

}  // namespace stepone::codegen
