// A plan as the executor runs it: the manifest's tables as plain C++, checked once and then trusted.
//
// Knows neither protobuf nor LibTorch, so that both sides of the client may include it. A Plan comes out of
// plan_from_manifest.h (or is written by hand in tests) and is immutable afterwards, which makes it safe to share
// between threads.
#ifndef STEPONE_CLIENT_PLAN_H_
#define STEPONE_CLIENT_PLAN_H_

#include <complex>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "proto/kernel_abi.h"

namespace stepone::client {

// Numbers are those of stepone.v1.DType.
enum class DType : uint8_t {
  kFloat64 = 1,
  kFloat32 = 2,
  kFloat16 = 3,
  kBFloat16 = 4,
  kInt64 = 5,
  kInt32 = 6,
  kInt16 = 7,
  kInt8 = 8,
  kUInt8 = 9,
  kBool = 10,
  kComplex64 = 11,
  kComplex128 = 12,
  kOther = 13,
};

// Bytes of an element; 0 for kOther.
int64_t ItemSize(DType dtype);
std::string_view DTypeName(DType dtype);

enum class Storage : uint8_t { kInput = 1, kConstant = 2, kArena = 3, kOutput = 4, kExtern = 5, kView = 6 };

// One tensor or host value that steps read or write; see artifact.proto.
struct Buffer {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // elements; never negative
  Storage storage = Storage::kExtern;
  uint32_t index = 0;   // position in inputs or constants, or the viewed buffer
  int64_t offset = 0;   // ARENA: bytes from its start. VIEW: elements from the first one of the viewed buffer
  bool opaque = false;  // a host scalar, or a tensor that only ATen steps understand
  std::string name;
};

// Elements from the first to one past the last that the strides reach; 0 for an empty tensor. REQUIRES: checked buffer.
int64_t SpanElements(const Buffer& buffer);

// A buffer used as an argument.
struct BufferRef {
  uint32_t buffer = 0;
};
using OptionalBufferList = std::vector<std::optional<uint32_t>>;
struct DeviceName {
  std::string type;
};
struct LayoutName {
  std::string name;
};
struct MemoryFormatName {
  std::string name;
};

using ArgumentValue =
    std::variant<std::monostate, BufferRef, OptionalBufferList, int64_t, double, bool, std::string,
                 std::vector<int64_t>, std::vector<double>, std::vector<bool>, std::vector<std::string>, DType,
                 DeviceName, LayoutName, MemoryFormatName, std::complex<double>>;

struct PlanArgument {
  std::string name;
  ArgumentValue value;
};

struct LaunchStep {
  uint32_t kernel = 0;
  std::vector<uint32_t> buffers;
  int64_t units = 0;
  int64_t grain = 1;
};

struct CallStep {
  std::string op;
  std::vector<PlanArgument> arguments;
  std::vector<std::optional<uint32_t>> results;
  bool results_are_list = false;
  std::string out_overload;
  std::string node;
};

struct SeedStep {
  uint32_t buffer = 0;
};

struct FreeStep {
  std::vector<uint32_t> buffers;
};

struct CopyStep {
  uint32_t source = 0;
  uint32_t destination = 0;
};

using Step = std::variant<LaunchStep, CallStep, SeedStep, FreeStep, CopyStep>;

struct InputSpec {
  enum class Kind : uint8_t { kTensor, kInt, kHostScalar, kIgnored };
  Kind kind = Kind::kTensor;
  uint32_t buffer = 0;    // kTensor, kHostScalar
  int64_t int_value = 0;  // kInt: what the caller must pass
  bool unused = false;
};

struct OutputSpec {
  enum class Kind : uint8_t { kBuffer, kInt, kNone };
  Kind kind = Kind::kNone;
  uint32_t buffer = 0;
  int64_t int_value = 0;
};

struct KernelInfo {
  std::string name;
  std::vector<std::string> source_ops;
  int64_t bytes_moved = 0;
  int64_t flops = 0;
};

struct Plan {
  std::vector<KernelInfo> kernels;
  std::vector<Buffer> buffers;
  std::vector<std::string> constants;  // bytes
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::vector<Step> steps;
  int64_t arena_bytes = 0;
};

// Compiled kernels of a plan, in the order of Plan::kernels, and what keeps them mapped.
struct KernelSet {
  std::vector<stepone_kernel_fn> functions;
  std::vector<std::shared_ptr<const void>> owners;
};

// A plan that can be run: what the compile client hands over and the executor takes.
struct Program {
  Plan plan;
  KernelSet kernels;
};

// Everything that memory safety of the executor rests on: each index in range, buffers within the arena and within what
// they view, each EXTERN buffer written before it is read and not used after it was freed, outputs that may leave.
// kDataLoss naming the entry at fault; never crashes, whatever the plan holds.
absl::Status CheckPlan(const Plan& plan);

// The plan as text, one line each for inputs, steps and outputs.
std::string DescribePlan(const Plan& plan);

}  // namespace stepone::client

#endif  // STEPONE_CLIENT_PLAN_H_
