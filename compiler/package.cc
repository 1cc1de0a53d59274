#include "compiler/package.h"

#include <map>
#include <string>
#include <utility>
#include <variant>

#include "compiler/arguments_to_proto.h"
#include "proto/digest.h"
#include "proto/kernel_abi.h"

namespace stepone::compiler {
namespace {

constexpr uint32_t kManifestVersion = 1;

using loops::Buffer;
using loops::BufferId;

v1::Storage StorageOf(planning::Home home) {
  switch (home) {
    case planning::Home::kInput:
      return v1::STORAGE_INPUT;
    case planning::Home::kConstant:
      return v1::STORAGE_CONSTANT;
    case planning::Home::kArena:
      return v1::STORAGE_ARENA;
    case planning::Home::kOutput:
      return v1::STORAGE_OUTPUT;
    case planning::Home::kExtern:
      return v1::STORAGE_EXTERN;
    case planning::Home::kView:
      return v1::STORAGE_VIEW;
  }
  return v1::STORAGE_UNSPECIFIED;
}

class Packager {
 public:
  Packager(const ir::Graph& graph, const loops::Program& program, const planning::MemoryPlan& memory,
           const BuiltKernels& kernels)
      : graph_(graph), program_(program), memory_(memory), kernels_(kernels), manifest_(result_.manifest) {}

  CompileResult Run() {
    manifest_.set_format_version(kManifestVersion);
    manifest_.set_kernel_abi_version(STEPONE_KERNEL_ABI_VERSION);
    manifest_.set_role(static_cast<v1::Role>(graph_.role));
    manifest_.set_arena_bytes(memory_.arena_bytes);
    AddObjects();
    AddBuffers();
    AddInputs();
    for (const ir::Constant& constant : graph_.constants) manifest_.add_constants()->set_data(constant.data);
    for (size_t step = 0; step < program_.steps.size(); ++step) AddStep(step);
    AddOutputs();
    return std::move(result_);
  }

 private:
  void AddObjects() {
    std::map<Digest, uint32_t> by_digest;
    for (const BuiltKernel& kernel : kernels_.kernels) {
      const Digest digest = Sha256(kernel.object);
      const auto [entry, is_new] = by_digest.try_emplace(digest, manifest_.objects_size());
      object_of_kernel_.push_back(entry->second);
      if (is_new) {
        v1::ObjectRef& object = *manifest_.add_objects();
        object.set_digest(digest.Raw());
        object.set_size_bytes(kernel.object.size());
        object.set_format("elf-so");
        v1::ObjectBytes& bytes = result_.objects.emplace_back();
        bytes.set_digest(digest.Raw());
        bytes.set_data(kernel.object);
      }
      if (!kernel.reused) {
        v1::CompiledKernel& compiled = result_.new_kernels.emplace_back();
        compiled.set_kernel_key(kernel.key);
        compiled.set_object(kernel.object);
      }
    }
  }

  void AddBuffers() {
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      const Buffer& from = program_.buffers[b];
      v1::Buffer& to = *manifest_.add_buffers();
      to.set_storage(StorageOf(memory_.placements[b].home));
      to.set_name(from.name);
      to.set_opaque(!from.type.plain);
      if (from.type.plain) {
        to.set_dtype(static_cast<v1::DType>(from.type.dtype));
        to.mutable_sizes()->Assign(from.type.sizes.begin(), from.type.sizes.end());
        to.mutable_strides()->Assign(from.type.strides.begin(), from.type.strides.end());
      }
      switch (memory_.placements[b].home) {
        case planning::Home::kInput:
        case planning::Home::kConstant:
          to.set_index(from.index);
          break;
        case planning::Home::kArena:
          to.set_offset(memory_.placements[b].offset_bytes);
          break;
        case planning::Home::kView:
          to.set_index(from.base);
          to.set_offset(from.offset);
          break;
        case planning::Home::kOutput:
        case planning::Home::kExtern:
          break;
      }
    }
  }

  // The program has a buffer only for inputs that something reads; the others are given one, so that they are checked.
  void AddInputs() {
    std::vector<BufferId> buffer_of_input(graph_.inputs.size(), -1);
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (program_.buffers[b].kind == Buffer::Kind::kInput) {
        buffer_of_input[program_.buffers[b].index] = static_cast<BufferId>(b);
      }
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      v1::InputSpec& input = *manifest_.add_inputs();
      if (graph_.input_numbers[i].has_value()) {
        input.set_int_value(*graph_.input_numbers[i]);
        continue;
      }
      const ir::TensorType& type = graph_.type(graph_.inputs[i]);
      input.set_unused(buffer_of_input[i] < 0);
      if (buffer_of_input[i] < 0) buffer_of_input[i] = AddUnusedInput(i, type);
      input.set_buffer(buffer_of_input[i]);
    }
  }

  BufferId AddUnusedInput(size_t position, const ir::TensorType& type) {
    v1::Buffer& buffer = *manifest_.add_buffers();
    buffer.set_storage(v1::STORAGE_INPUT);
    buffer.set_index(position);
    buffer.set_opaque(!type.plain);
    buffer.set_dtype(static_cast<v1::DType>(type.dtype));
    buffer.mutable_sizes()->Assign(type.sizes.begin(), type.sizes.end());
    buffer.mutable_strides()->Assign(type.strides.begin(), type.strides.end());
    return manifest_.buffers_size() - 1;
  }

  void AddStep(size_t step) {
    const loops::Step& what = program_.steps[step];
    if (const auto* launch = std::get_if<loops::Launch>(&what)) {
      AddLaunch(*launch, kernels_.kernel_of_step[step]);
    } else if (const auto* seed = std::get_if<loops::DrawSeed>(&what)) {
      manifest_.add_steps()->mutable_seed()->set_buffer(seed->buffer);
    } else {
      AddCall(std::get<loops::ExternCall>(what), memory_.out_overload[step]);
    }
    if (!memory_.free_after[step].empty()) {
      v1::FreeStep& free = *manifest_.add_steps()->mutable_free();
      for (BufferId b : memory_.free_after[step]) free.add_buffers(b);
    }
  }

  void AddLaunch(const loops::Launch& launch, int32_t index) {
    const BuiltKernel& built = kernels_.kernels[index];
    v1::Kernel& kernel = *manifest_.add_kernels();
    kernel.set_object(object_of_kernel_[index]);
    kernel.set_symbol(built.source.symbol);
    kernel.set_name(launch.kernel.name);
    kernel.mutable_source_ops()->Assign(launch.kernel.sources.begin(), launch.kernel.sources.end());
    kernel.set_bytes_moved(launch.kernel.bytes_moved);
    kernel.set_flops(launch.kernel.flops);
    kernel.set_kernel_key(built.key);
    v1::LaunchStep& step = *manifest_.add_steps()->mutable_launch();
    step.set_kernel(manifest_.kernels_size() - 1);
    step.mutable_buffers()->Assign(launch.buffers.begin(), launch.buffers.end());
    step.set_units(built.source.units);
    step.set_grain(built.source.grain);
  }

  void AddCall(const loops::ExternCall& call, const std::string& out_overload) {
    const ir::Node& node = graph_.node(call.node);
    v1::CallStep& step = *manifest_.add_steps()->mutable_call();
    step.set_op(node.call->op);
    for (const ir::Argument& argument : node.call->arguments) {
      ArgumentToProto(argument, call.operands, *step.add_arguments());
    }
    for (BufferId result : call.results) step.add_results(result + 1);
    step.set_results_are_list(node.call->results_are_list);
    step.set_out_overload(out_overload);
    if (!node.sources.empty()) step.set_node(node.sources.front());
  }

  void AddOutputs() {
    for (const loops::ProgramOutput& output : program_.outputs) {
      v1::OutputSpec& spec = *manifest_.add_outputs();
      if (output.buffer >= 0) {
        spec.set_buffer(output.buffer);
      } else if (output.number.has_value()) {
        spec.set_int_value(*output.number);
      } else {
        spec.set_none(true);
      }
    }
  }

  const ir::Graph& graph_;
  const loops::Program& program_;
  const planning::MemoryPlan& memory_;
  const BuiltKernels& kernels_;
  std::vector<uint32_t> object_of_kernel_;
  CompileResult result_;
  v1::Manifest& manifest_;
};

}  // namespace

CompileResult Package(const ir::Graph& graph, const loops::Program& program, const planning::MemoryPlan& memory,
                      const BuiltKernels& kernels) {
  return Packager(graph, program, memory, kernels).Run();
}

}  // namespace stepone::compiler
