"""Splits a joint graph into forward and backward: torch's min-cut partitioner, and what it should find and leave."""

import operator

import torch
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch.fx import Node
from torch.utils.checkpoint import CheckpointPolicy


def partition(joint_module, joint_inputs, **kwargs):
    """(forward, backward) of `joint_module`, which is changed."""
    merge_equal_nodes(joint_module.graph)
    _save_random_values(joint_module)
    # The partitioner's own elimination of common subexpressions would import the whole of Inductor for one function.
    with config.patch(cse=False):
        return min_cut_rematerialization_partition(joint_module, joint_inputs, **kwargs)


def merge_equal_nodes(graph) -> int:
    """Lets equal pure calls be made once, so that their result is saved for backward once. Returns how many calls went.

    Results that share storage with an output stay as they are: which outputs alias each other is visible outside. What
    comes after a write in place is left alone, and so is all that is random or uninitialized.
    """
    shared_with_outputs = _nodes_sharing_storage(graph)
    first_of = {}
    merged = 0
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        if _writes(node):
            break
        if not _is_pure(node.target) or node in shared_with_outputs:
            continue
        key = (node.target, _key(node.args), _key(node.kwargs))
        first = first_of.setdefault(key, node)
        if first is not node and _tags(first) == _tags(node):
            node.replace_all_uses_with(first)
            graph.erase_node(node)
            merged += 1
    return merged


def _nodes_sharing_storage(graph):
    output = next(iter(reversed(graph.nodes)))
    storages = {_storage(node) for node in output.all_input_nodes} - {None}
    return {node for node in graph.nodes if _storage(node) in storages}


def _storage(node):
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return value.untyped_storage()._cdata


def _writes(node):
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _is_pure(target):
    if not isinstance(target, torch._ops.OpOverload):
        return target is operator.getitem
    return (target.namespace in ("aten", "prims") and torch.Tag.nondeterministic_seeded not in target.tags
            and not target.name().startswith(("aten::empty", "aten::new_empty")))


def _key(value):
    """Hashable, and different for 1, 1.0 and True."""
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_key, value))
    if isinstance(value, dict):
        return tuple((name, _key(value[name])) for name in sorted(value))
    if isinstance(value, slice):
        return ("slice", _key(value.start), _key(value.stop), _key(value.step))
    if isinstance(value, Node) or value is None:
        return value
    return (type(value).__name__, str(value))


def _tags(node):
    """What the user said about recomputing it."""
    return node.meta.get("recompute"), node.meta.get("ac_graph_id")


def _save_random_values(joint_module):
    """Under activation checkpointing random values are saved instead of drawn again: replaying the generator's state
    needs ops that no fused kernel can hold, and a mask is small beside what checkpointing frees."""
    for node in joint_module.graph.nodes:
        if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()) or "recompute" not in node.meta:
            continue
        results = [user for user in node.users if user.target is operator.getitem]
        if results:
            del node.meta["recompute"]   # a tuple can't be saved; its elements can
        for saved in results or [node]:
            saved.meta["recompute"] = CheckpointPolicy.MUST_SAVE
