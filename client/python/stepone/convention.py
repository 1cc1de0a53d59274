"""How autograd calls the compiled halves of a graph, as plain data: what AOTAutograd found out about aliases, mutations,
gradients and saved values. The other way round it becomes the metadata of torch's own runtime wrappers, which then do
what they would have done without a bundle.

The fields are those of `Convention` in proto/stepone/v1/bundle.proto. Whatever it can't say exactly raises Untraceable,
and the graph goes through AOTAutograd each time.
"""

import torch
from torch._functorch._aot_autograd.schemas import (
    InputAliasInfo, MemoryFormatMeta, MutationType, OutputAliasInfo, OutputType, PlainTensorMeta, ViewAndMutationMeta)

from stepone.trace import Untraceable

_OUTPUT_KINDS = {
    OutputType.non_alias: "OUTPUT_KIND_NON_ALIAS",
    OutputType.alias_of_input: "OUTPUT_KIND_ALIAS_OF_INPUT",
    OutputType.is_input: "OUTPUT_KIND_IS_INPUT",
    OutputType.unsafe_view_alias: "OUTPUT_KIND_UNSAFE_VIEW_ALIAS",
    OutputType.custom_function_view: "OUTPUT_KIND_CUSTOM_FUNCTION_VIEW",
}


def _name(memory_format):
    return str(memory_format).removeprefix("torch.")


_MEMORY_FORMATS = {_name(memory_format): memory_format for memory_format in (
    torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)}
_OUTPUT_TYPES = {kind: output_type for output_type, kind in _OUTPUT_KINDS.items()}


def describe(metadata: ViewAndMutationMeta, num_inputs: int, num_outputs: int, backward_outputs=None,
             gradient_sources=None) -> dict:
    """The convention as the fields of its message. `num_inputs`: of the captured graph; `num_outputs`: of the compiled
    forward or inference graph; `backward_outputs`: output nodes of the backward graph, None for an inference graph;
    `gradient_sources`: for each gradient the tangents it depends on, or None. Raises Untraceable."""
    _refuse_what_is_not_carried(metadata)
    if len(metadata.input_info) != num_inputs:
        raise Untraceable("inputs that share memory and are written")   # merged or dropped by AOTAutograd's wrappers
    has_backward = backward_outputs is not None
    convention = {
        "inputs": [_input(info) for info in metadata.input_info],
        "outputs": [_output(info) for info in metadata.output_info],
        "static_inputs": list(metadata.static_input_indices or ()),
        "forward_outputs": num_outputs,
        "has_backward": has_backward,
        "deterministic": bool(metadata.deterministic),
    }
    if metadata.grad_enabled_mutation is not None:
        convention["grad_enabled_after"] = metadata.grad_enabled_mutation
    if not has_backward:
        return convention
    if metadata.num_symints_saved_for_bw or metadata.num_opaque_objects_saved_for_bw:
        raise Untraceable("saved values that are no tensors")
    return convention | {
        "tangents": [_tangent(meta) for meta in metadata.subclass_tangent_meta],
        "detached_inputs": _detached_inputs(metadata, backward_outputs),
        "inputs_mutated_in_backward": list(metadata.indices_of_inputs_that_requires_grad_with_mutations_in_bw),
        "has_donated": metadata.bw_donated_idxs is not None,
        "donated_saved": list(metadata.bw_donated_idxs or ()),
        "saved_outputs": num_outputs - metadata.num_forward,
        "saved_without_version_check": metadata.num_tensors_saved_with_no_vc_check or 0,
        "gradients": [{"defined": sources is not None, "tangents": sorted(sources or ())}
                      for sources in gradient_sources],
    }


def _refuse_what_is_not_carried(metadata):
    reasons = {
        "outputs that are views of one another": metadata.num_intermediate_bases,
        "ordered side effects": metadata.tokens or metadata.num_backward_tokens,
        "functionalized random numbers": metadata.is_rng_op_functionalized or metadata.num_graphsafe_rng_states,
        "collectives that are awaited": metadata.act_input_indices,
        "outputs or saved values with dynamic sizes": metadata.dynamic_outputs or metadata.dynamic_saved_tensors_idxs,
        "streams": any(index is not None for index in metadata.mutated_inp_stream_indices or ()),
        "tensor subclasses": not all(
            isinstance(meta, PlainTensorMeta) and meta.unwrapped_idx == position
            for metas in (metadata.subclass_inp_meta, metadata.subclass_fw_graph_out_meta)
            for position, meta in enumerate(metas)) or not all(
            isinstance(meta, PlainTensorMeta) for meta in metadata.subclass_tangent_meta),
        "tangents that are no tensors": any(kind is not torch.Tensor for kind in metadata.output_types),
    }
    for reason, holds in reasons.items():
        if holds:
            raise Untraceable(reason)


def _input(info):
    if info.mutates_metadata or info.mutates_storage_metadata or info.mutation_inductor_storage_resize:
        raise Untraceable("an input whose shape or storage changes")
    return {
        "is_leaf": info.is_leaf,
        "requires_grad": info.requires_grad,
        "mutates_data": info.mutates_data,
        "mutation_hidden_from_autograd": info.mutations_hidden_from_autograd,
        "mutation_without_grad": info.mutations_under_no_grad_or_inference_mode,
        "mutation_in_graph": info.keep_input_mutations,
    }


def _output(info):
    kind = _OUTPUT_KINDS.get(info.output_type)
    if kind is None:
        raise Untraceable("outputs that are views of one another")
    if not issubclass(info.raw_type, torch.Tensor):
        raise Untraceable("outputs that are no tensors")
    if info.view_meta_sequence is not None and info.output_type is OutputType.alias_of_input:
        raise Untraceable("an output that is a view of an input")
    output = {
        "kind": kind,
        "requires_grad": info.requires_grad,
        "requires_grad_for_backward": info.requires_grad_for_backward,
    }
    return output if info.base_idx is None else output | {"base": info.base_idx}


def _tangent(meta):
    layout = meta.memory_format
    if layout is None:
        raise Untraceable("a tangent of unknown layout")
    if layout.memory_format is not None:
        return {"memory_format": _name(layout.memory_format)}
    return {"sizes": list(layout.size), "strides": list(layout.stride)}


def _detached_inputs(metadata, backward_outputs):
    """Inputs that are results of other computations and get no gradient; as AOTAutograd determines them, so that a
    backward through them does not run into a graph that has been freed."""
    if len(backward_outputs) != len(metadata.input_info):
        raise Untraceable("gradients that do not match the inputs")
    return [position for position, (gradient, info) in enumerate(zip(backward_outputs, metadata.input_info))
            if gradient is None and info.requires_grad and not info.is_leaf]


def metadata_of(convention: dict) -> ViewAndMutationMeta:
    """The metadata that `describe` was given, as far as torch's runtime wrappers read it."""
    inputs = [InputAliasInfo(
        is_leaf=i["is_leaf"], mutates_data=i["mutates_data"], mutates_metadata=False,
        mutations_hidden_from_autograd=i["mutation_hidden_from_autograd"],
        mutations_under_no_grad_or_inference_mode=i["mutation_without_grad"], mutation_inductor_storage_resize=False,
        mutates_storage_metadata=False, requires_grad=i["requires_grad"], keep_input_mutations=i["mutation_in_graph"])
        for i in convention["inputs"]]
    outputs = [OutputAliasInfo(
        output_type=_OUTPUT_TYPES[o["kind"]], raw_type=torch.Tensor, base_idx=o.get("base"), dynamic_dims=set(),
        requires_grad=o["requires_grad"], requires_grad_for_backward=o["requires_grad_for_backward"])
        for o in convention["outputs"]]
    mutated_outside = [i for i, info in enumerate(inputs) if info.mutation_type == MutationType.MUTATED_OUT_GRAPH]
    tangents = [_tangent_meta(position, t) for position, t in enumerate(convention.get("tangents", ()))]
    metadata = ViewAndMutationMeta(
        input_info=inputs, output_info=outputs, num_intermediate_bases=0,
        keep_input_mutations=any(info.keep_input_mutations for info in inputs),
        traced_tangents=[], traced_tangents_descs=[None] * len(tangents),
        subclass_inp_meta=[PlainTensorMeta(i) for i in range(len(inputs))],
        subclass_fw_graph_out_meta=[PlainTensorMeta(i) for i in range(len(mutated_outside) + len(outputs))],
        subclass_tangent_meta=tangents, traced_tangent_metas=[None] * len(tangents),
        num_symints_saved_for_bw=0, num_opaque_objects_saved_for_bw=0,
        num_tensors_saved_with_no_vc_check=convention["saved_without_version_check"],
        grad_enabled_mutation=convention.get("grad_enabled_after"), deterministic=convention["deterministic"],
        static_input_indices=list(convention["static_inputs"]),
        indices_of_inputs_that_requires_grad_with_mutations_in_bw=list(convention["inputs_mutated_in_backward"]),
        bw_donated_idxs=list(convention["donated_saved"]) if convention["has_donated"] else None,
        mutated_inp_stream_indices=[None] * len(mutated_outside))
    metadata.output_types = [torch.Tensor] * len(tangents)
    return metadata


def _tangent_meta(position, tangent):
    name = tangent["memory_format"]
    if name:
        layout = MemoryFormatMeta(memory_format=_MEMORY_FORMATS[name])
    else:
        layout = MemoryFormatMeta(size=torch.Size(map(int, tangent["sizes"])),
                                  stride=tuple(map(int, tangent["strides"])))
    return PlainTensorMeta(position, layout)
