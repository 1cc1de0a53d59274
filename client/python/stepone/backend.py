"""The torch.compile backend "stepone"."""

import weakref

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException

from stepone import records
from stepone.bundle import TracedGraph
from stepone.compiled_graph import CompiledGraph
from stepone.config import Settings
from stepone.partition import partition
from stepone.service import connect_early
from stepone.undefined_gradients import GradientSources, keep_undefined

# Key in GraphModule.meta under which the partition function leaves the request for the compilers.
_META_KEY = "stepone_compiled_graph"

# Whoever calls torch.compile imports this file, and Dynamo then takes its time.
connect_early()

_live_graphs = weakref.WeakSet()
_live_traces = weakref.WeakSet()


def stepone_backend(gm: torch.fx.GraphModule, example_inputs, mode: str | None = None, options: dict | None = None):
    """Compiles a captured graph through the service. ValueError for an unknown mode or option, listing the known ones.

    Whatever else fails, the graph runs eagerly and a warning says why.
    """
    settings = Settings.from_env().with_options(mode, options)
    _remove_inactive_dropout(gm)
    traced = TracedGraph(gm, example_inputs, settings)
    hit = traced.find()
    if hit is not None:
        return hit
    _live_traces.add(traced)
    compilers = _Compilers(settings, traced)
    compiler = aot_autograd(
        fw_compiler=compilers.forward, bw_compiler=compilers.backward, inference_compiler=compilers.inference,
        partition_fn=compilers.partition)
    try:
        compiled = compiler(gm, example_inputs)
    except TorchDynamoException:
        raise   # Dynamo's own control flow: restarts, graph breaks
    except Exception as error:
        records.count("fallback.not traceable")
        records.warn_once(f"not traceable {type(error).__name__}", (
            f"a captured graph runs eagerly, AOTAutograd can't trace it: {type(error).__name__}: {error}"))
        records.log.debug("stepone: AOTAutograd failed", exc_info=True)
        return gm.forward
    sources = compilers.gradient_sources
    traced.seal(sources)
    return keep_undefined(compiled, sources) if sources is not None and sources.may_differ() else compiled


def explain() -> list[dict]:
    """For each graph of this process that no bundle served, whether the service has it, and which fields of the key
    differ from the nearest stored entry: the graphs as captured first (role "trace"; the fields are lines of their
    text), then what they became. StepOneError when the service does not answer."""
    traces = [traced.explain() for traced in list(_live_traces) if traced.trace is not None]
    return traces + [answer for graph in list(_live_graphs) for answer in graph.explain()]


class _Compilers:
    """What AOTAutograd calls for one captured graph."""

    def __init__(self, settings, traced):
        self._settings = settings
        self._traced = traced
        self.gradient_sources = None

    def partition(self, joint_module, joint_inputs, **kwargs):
        """Splits the joint graph, and submits both halves at once: AOTAutograd lowers the backward only when it is
        first needed, which would be a wait in the middle of step one."""
        forward, backward = partition(joint_module, joint_inputs, **kwargs)
        for module, role, static in ((forward, "forward", _static_inputs()), (backward, "backward", ())):
            module.meta[_META_KEY] = self._submit(module, role, static)
        self.gradient_sources = GradientSources.of(backward)
        # AOTAutograd copies the module before it lowers it, in case that changes it. Ours does not, and copying a
        # thousand nodes with their metadata takes longer than compiling them.
        backward.__dict__["__deepcopy__"] = lambda memo: backward
        return forward, backward

    def forward(self, gm, example_inputs):
        self._traced.metadata = _metadata()
        return self._pick_up(gm, "forward")

    def backward(self, gm, example_inputs):
        return self._pick_up(gm, "backward")

    def inference(self, gm, example_inputs):
        self._traced.metadata = _metadata()
        return self._submit(gm, "inference", _static_inputs()).as_function()

    def _pick_up(self, gm, role):
        graph = gm.meta.pop(_META_KEY, None)
        # Hooks and effect tokens may have changed the module since it was submitted.
        if graph is None or graph.num_nodes != len(gm.graph.nodes):
            graph = self._submit(gm, role, _static_inputs() if role == "forward" else ())
        return graph.as_function()

    def _submit(self, gm, role, static_inputs):
        graph = CompiledGraph(gm, role, self._settings, static_inputs)
        _live_graphs.add(graph)
        self._traced.add(role, graph)
        graph.prefetch()
        return graph


def _remove_inactive_dropout(gm):
    """Dropout that is switched off returns its very input, so a change of the result in place is one of the input. That
    alias is lost in AOTAutograd's functionalization; without the call there is none to lose."""
    changed = False
    for node in gm.graph.find_nodes(op="call_function", target=torch.nn.functional.dropout):
        given = dict(zip(("input", "p", "training", "inplace"), node.args)) | node.kwargs
        if given.get("training", True) is False or given.get("p", 0.5) == 0:
            node.replace_all_uses_with(given["input"])
            gm.graph.erase_node(node)
            changed = True
    if changed:
        gm.recompile()


def _metadata():
    """What AOTAutograd knows of the graph that it is compiling."""
    context = torch._guards.TracingContext.try_get()
    return context.fw_metadata if context is not None else None


def _static_inputs():
    """Positions of parameters and buffers among the forward graph's inputs."""
    metadata = _metadata()
    return tuple(metadata.static_input_indices or ()) if metadata is not None else ()
