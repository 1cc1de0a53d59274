// CheckPlan: what a damaged or hostile plan could do to the executor, refused before anything is mapped.
#include <limits>
#include <string>
#include <vector>

#include "client/plan.h"
#include "proto/str_cat.h"

namespace stepone::client {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 46;  // far above any host's memory, far below overflow
constexpr size_t kMaxDims = 64;

class Checker {
 public:
  explicit Checker(const Plan& plan) : plan_(plan), live_(plan.buffers.size(), false) {}

  absl::Status Run() {
    if (plan_.arena_bytes < 0 || plan_.arena_bytes > kMaxBytes) {
      return absl::DataLossError(StrCat("plan: arena of ", plan_.arena_bytes, " bytes"));
    }
    for (uint32_t i = 0; i < plan_.buffers.size(); ++i) {
      if (absl::Status status = CheckShape(i); !status.ok()) return status;
    }
    roots_.resize(plan_.buffers.size());
    for (uint32_t i = 0; i < plan_.buffers.size(); ++i) {
      if (absl::Status status = FindRoot(i); !status.ok()) return status;
    }
    for (uint32_t i = 0; i < plan_.buffers.size(); ++i) {
      if (absl::Status status = CheckPlace(i); !status.ok()) return status;
    }
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (absl::Status status = CheckInput(i); !status.ok()) return status;
    }
    for (step_ = 0; step_ < plan_.steps.size(); ++step_) {
      absl::Status status = std::visit([this](const auto& step) { return Check(step); }, plan_.steps[step_]);
      if (!status.ok()) return status;
    }
    return CheckOutputs();
  }

 private:
  static absl::Status BadBuffer(uint32_t index, std::string_view what) {
    return absl::DataLossError(StrCat("plan: buffer ", index, " ", what));
  }
  absl::Status BadStep(std::string_view what) const {
    return absl::DataLossError(StrCat("plan: step ", step_, " ", what));
  }

  static bool HasBuffer(const InputSpec& input) {
    return input.kind == InputSpec::Kind::kTensor || input.kind == InputSpec::Kind::kHostScalar;
  }

  // Sizes and strides are sane and their extent fits kMaxBytes.
  absl::Status CheckShape(uint32_t index) const {
    const Buffer& buffer = plan_.buffers[index];
    const auto storage = static_cast<int>(buffer.storage);
    if (storage < 1 || storage > 6) return BadBuffer(index, "has an unknown storage");
    if (buffer.opaque) {
      const bool can_be_opaque = buffer.storage == Storage::kInput || buffer.storage == Storage::kExtern;
      return can_be_opaque ? absl::OkStatus() : BadBuffer(index, "is opaque and has memory");
    }
    const int dtype = static_cast<int>(buffer.dtype);
    if (dtype < 1 || dtype > 12) return BadBuffer(index, "has a dtype without a size");
    if (buffer.sizes.size() != buffer.strides.size())
      return BadBuffer(index, "has unequal numbers of sizes and strides");
    if (buffer.sizes.size() > kMaxDims) return BadBuffer(index, "has too many dimensions");
    const int64_t limit = kMaxBytes / ItemSize(buffer.dtype);
    int64_t count = 1, last = 0;
    for (size_t d = 0; d < buffer.sizes.size(); ++d) {
      const int64_t size = buffer.sizes[d], stride = buffer.strides[d];
      if (size < 0 || stride < 0) return BadBuffer(index, "has a negative size or stride");
      int64_t extent = 0;
      if (__builtin_mul_overflow(count, size, &count) || count > limit) return BadBuffer(index, "is too large");
      if (size == 0) continue;
      if (__builtin_mul_overflow(size - 1, stride, &extent) || __builtin_add_overflow(last, extent, &last) ||
          last >= limit) {
        return BadBuffer(index, "reaches too far");
      }
    }
    return absl::OkStatus();
  }

  // The buffer whose memory `index` is in, and the offset into it in elements.
  struct Root {
    uint32_t buffer = 0;
    int64_t offset = 0;
  };

  absl::Status FindRoot(uint32_t index) {
    Root root{index, 0};
    for (size_t hops = 0; plan_.buffers[root.buffer].storage == Storage::kView; ++hops) {
      const Buffer& view = plan_.buffers[root.buffer];
      if (hops > plan_.buffers.size()) return BadBuffer(index, "is a view of itself");
      if (view.index >= plan_.buffers.size()) return BadBuffer(index, "is a view of a buffer that does not exist");
      const Buffer& base = plan_.buffers[view.index];
      if (base.opaque) return BadBuffer(index, "is a view of an opaque buffer");
      if (ItemSize(base.dtype) != ItemSize(view.dtype)) return BadBuffer(index, "is a view with another element size");
      if (view.offset < 0 || view.offset > kMaxBytes - root.offset) return BadBuffer(index, "has a bad offset");
      root.offset += view.offset;
      root.buffer = view.index;
    }
    roots_[index] = root;
    return absl::OkStatus();
  }

  // The buffer lies within its memory.
  absl::Status CheckPlace(uint32_t index) const {
    const Buffer& buffer = plan_.buffers[index];
    const int64_t bytes = buffer.opaque ? 0 : SpanElements(buffer) * ItemSize(buffer.dtype);
    switch (buffer.storage) {
      case Storage::kInput:
        if (buffer.index >= plan_.inputs.size()) return BadBuffer(index, "is an input that does not exist");
        if (!HasBuffer(plan_.inputs[buffer.index]) || plan_.inputs[buffer.index].buffer != index) {
          return BadBuffer(index, "is not the buffer of its input");
        }
        return absl::OkStatus();
      case Storage::kConstant:
        if (buffer.index >= plan_.constants.size()) return BadBuffer(index, "is a constant that does not exist");
        if (bytes > static_cast<int64_t>(plan_.constants[buffer.index].size())) {
          return BadBuffer(index, "is larger than its constant");
        }
        return absl::OkStatus();
      case Storage::kArena:
        if (buffer.offset < 0 || buffer.offset % ItemSize(buffer.dtype) != 0)
          return BadBuffer(index, "has a bad offset");
        if (buffer.offset > plan_.arena_bytes || bytes > plan_.arena_bytes - buffer.offset) {
          return BadBuffer(index, "reaches beyond the arena");
        }
        return absl::OkStatus();
      case Storage::kView: {
        const Root& root = roots_[index];
        const int64_t base = SpanElements(plan_.buffers[root.buffer]);
        const int64_t span = SpanElements(buffer);
        if (span > 0 && (root.offset > base || span > base - root.offset)) {
          return BadBuffer(index, "reaches beyond what it views");
        }
        return absl::OkStatus();
      }
      case Storage::kOutput:
      case Storage::kExtern:
        return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  absl::Status CheckInput(size_t i) const {
    const InputSpec& input = plan_.inputs[i];
    if (!HasBuffer(input)) return absl::OkStatus();
    const auto bad = [i](std::string_view what) { return absl::DataLossError(StrCat("plan: input ", i, " ", what)); };
    if (input.buffer >= plan_.buffers.size()) return bad("names a buffer that does not exist");
    const Buffer& buffer = plan_.buffers[input.buffer];
    if (buffer.storage != Storage::kInput || buffer.index != i) return bad("names a buffer that is not its own");
    if (input.kind == InputSpec::Kind::kHostScalar && !buffer.opaque) return bad("is a host scalar with memory");
    return absl::OkStatus();
  }

  Storage RootStorage(uint32_t index) const { return plan_.buffers[roots_[index].buffer].storage; }

  // `index` exists and holds a value now.
  absl::Status CheckReadable(uint32_t index) const {
    if (index >= plan_.buffers.size()) return BadStep("names a buffer that does not exist");
    const uint32_t root = roots_[index].buffer;
    if (plan_.buffers[root].storage == Storage::kExtern && !live_[root]) {
      return BadStep(StrCat("uses buffer ", index, ", which holds nothing at that time"));
    }
    return absl::OkStatus();
  }

  absl::Status CheckTensor(uint32_t index) const {
    if (absl::Status status = CheckReadable(index); !status.ok()) return status;
    if (plan_.buffers[index].opaque) return BadStep(StrCat("needs the memory of opaque buffer ", index));
    return absl::OkStatus();
  }

  absl::Status CheckOwnMemory(uint32_t index) const {
    if (absl::Status status = CheckTensor(index); !status.ok()) return status;
    const Storage storage = RootStorage(index);
    if (storage != Storage::kArena && storage != Storage::kOutput) {
      return BadStep(StrCat("writes into buffer ", index, ", which is not the plan's own"));
    }
    return absl::OkStatus();
  }

  absl::Status Check(const LaunchStep& step) {
    if (step.kernel >= plan_.kernels.size()) return BadStep("launches a kernel that does not exist");
    if (step.units < 0 || step.grain < 1) return BadStep("has a bad number of units or a bad grain");
    for (uint32_t buffer : step.buffers) {
      if (absl::Status status = CheckTensor(buffer); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Check(const CallStep& step) {
    for (const PlanArgument& argument : step.arguments) {
      if (const auto* ref = std::get_if<BufferRef>(&argument.value)) {
        if (absl::Status status = CheckReadable(ref->buffer); !status.ok()) return status;
      } else if (const auto* list = std::get_if<OptionalBufferList>(&argument.value)) {
        for (const auto& entry : *list) {
          if (!entry) continue;
          if (absl::Status status = CheckReadable(*entry); !status.ok()) return status;
        }
      }
    }
    for (const auto& result : step.results) {
      if (absl::Status status = CheckResult(step, result); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status CheckResult(const CallStep& step, std::optional<uint32_t> result) {
    if (!step.out_overload.empty()) {
      return result ? CheckOwnMemory(*result) : BadStep("has an out= result that nobody uses");
    }
    if (!result) return absl::OkStatus();
    if (*result >= plan_.buffers.size()) return BadStep("names a buffer that does not exist");
    if (plan_.buffers[*result].storage != Storage::kExtern) {
      return BadStep(StrCat("returns into buffer ", *result, ", which is not an extern one"));
    }
    if (live_[*result]) return BadStep(StrCat("returns into buffer ", *result, ", which is in use"));
    live_[*result] = true;
    return absl::OkStatus();
  }

  absl::Status Check(const SeedStep& step) {
    if (absl::Status status = CheckOwnMemory(step.buffer); !status.ok()) return status;
    const Buffer& buffer = plan_.buffers[step.buffer];
    if (buffer.dtype != DType::kInt64 || SpanElements(buffer) < 1) return BadStep("draws a seed into no int64");
    return absl::OkStatus();
  }

  absl::Status Check(const FreeStep& step) {
    for (uint32_t buffer : step.buffers) {
      if (absl::Status status = CheckReadable(buffer); !status.ok()) return status;
      if (plan_.buffers[buffer].storage != Storage::kExtern) {
        return BadStep(StrCat("frees buffer ", buffer, ", which is not an extern one"));
      }
      live_[buffer] = false;
    }
    return absl::OkStatus();
  }

  absl::Status Check(const CopyStep& step) {
    if (absl::Status status = CheckTensor(step.source); !status.ok()) return status;
    if (absl::Status status = CheckTensor(step.destination); !status.ok()) return status;
    if (RootStorage(step.destination) == Storage::kConstant) return BadStep("writes into a constant");
    if (plan_.buffers[step.source].sizes != plan_.buffers[step.destination].sizes) {
      return BadStep("copies between unequal sizes");
    }
    return absl::OkStatus();
  }

  absl::Status CheckOutputs() const {
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const OutputSpec& output = plan_.outputs[i];
      if (output.kind != OutputSpec::Kind::kBuffer) continue;
      const auto bad = [i](std::string_view what) {
        return absl::DataLossError(StrCat("plan: output ", i, " ", what));
      };
      if (output.buffer >= plan_.buffers.size()) return bad("names a buffer that does not exist");
      const uint32_t root = roots_[output.buffer].buffer;
      const Storage storage = plan_.buffers[root].storage;
      if (storage == Storage::kArena) return bad("is in the arena, which the next run overwrites");
      if (storage == Storage::kExtern && !live_[root]) return bad("holds nothing at the end");
      if (storage == Storage::kInput && plan_.inputs[plan_.buffers[root].index].unused)
        return bad("is an unused input");
    }
    return absl::OkStatus();
  }

  const Plan& plan_;
  std::vector<Root> roots_;
  std::vector<bool> live_;  // EXTERN buffers that hold a value at step_
  size_t step_ = 0;
};

}  // namespace

absl::Status CheckPlan(const Plan& plan) { return Checker(plan).Run(); }

}  // namespace stepone::client
