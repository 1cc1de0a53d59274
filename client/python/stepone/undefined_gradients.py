"""Keeps "no gradient" apart from "a gradient of zero".

Autograd hands zeros to a compiled function for each output that the loss does not use, and the compiled backward makes
zero gradients out of them. Eager gives None then, and an optimizer with momentum or weight decay tells the two apart.
Which gradients hang on which outputs can be read off the backward graph; which outputs were used is known to autograd
just before it fills in the zeros.
"""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class GradientSources:
    """For each gradient of a backward graph the outputs (positions among its tangents) that it depends on; None: there
    is no such gradient."""

    by_gradient: list[frozenset[int] | None]
    num_tangents: int

    @staticmethod
    def of(backward: torch.fx.GraphModule) -> "GradientSources":
        tangents = {}
        reached = {}
        for node in backward.graph.nodes:
            if node.op == "placeholder" and node.name.startswith("tangents"):
                tangents[node] = len(tangents)
                reached[node] = frozenset((tangents[node],))
            elif node.op == "output":
                by_gradient = [reached.get(g) if isinstance(g, torch.fx.Node) else None for g in node.args[0]]
            else:
                reached[node] = frozenset().union(*(reached[source] for source in node.all_input_nodes))
        return GradientSources(by_gradient, len(tangents))

    def may_differ(self) -> bool:
        """Whether some gradient can be undefined while another one is defined."""
        return any(sources is not None and len(sources) < self.num_tangents for sources in self.by_gradient)


def keep_undefined(compiled, sources: GradientSources):
    """`compiled` (what AOTAutograd returned), whose backward gives None where eager would. Where outputs are no plain
    results of the compiled function (aliases of inputs, say) nothing is changed."""

    def call(*args):
        outputs = compiled(*args)
        positions = {}
        for output in outputs:
            node = output.grad_fn if isinstance(output, torch.Tensor) else None
            if type(node).__name__ == _NODE:
                positions.setdefault(node, set()).add(output.output_nr)
        for node, numbers in positions.items():
            if len(numbers) == sources.num_tangents:
                _attach(node, sorted(numbers), sources)
        return outputs

    return call


_NODE = "CompiledFunctionBackward"


def _attach(node, tangent_positions, sources):
    """`tangent_positions`: for each tangent its place among the gradients that the node is called with."""
    defined = set()

    def before(gradients):
        defined.clear()
        defined.update(n for n, position in enumerate(tangent_positions) if gradients[position] is not None)

    def after(gradients, _):
        if len(gradients) != len(sources.by_gradient):
            return None
        return tuple(None if wanted is not None and wanted.isdisjoint(defined) else gradient
                     for gradient, wanted in zip(gradients, sources.by_gradient))

    node.register_prehook(before)
    node.register_hook(after)
