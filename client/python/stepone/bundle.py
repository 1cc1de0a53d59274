"""Bundles: what AOTAutograd made of a captured graph, kept by the service under the graph's text (`trace.py`), so that the
next process gets forward, backward and the way to call them without tracing anything again.
"""

import contextlib
import threading
import time

import torch
from torch._dynamo import compiled_autograd
from torch._functorch._aot_autograd.runtime_wrappers import (
    AOTDispatchAutograd, AOTDispatchAutogradCompileSpec, RuntimeWrapper)
from torch._functorch._aot_autograd.schemas import AOTConfig
from torch._functorch.aot_autograd import AOT_COUNTER

from stepone import _native, records
from stepone.convention import describe, metadata_of
from stepone.service import Service, connect, request_options
from stepone.trace import Untraceable, trace_text
from stepone.undefined_gradients import GradientSources, keep_undefined

StepOneError = _native.StepOneError


class TracedGraph:
    """A captured graph on its way to a bundle: asked for first, and recorded after AOTAutograd had to be used."""

    def __init__(self, gm, example_inputs, settings):
        self._gm = gm
        self._settings = settings
        self._graphs = {}           # role -> CompiledGraph
        self._is_sealed = False
        self._convention = None
        self._lock = threading.Lock()
        self.metadata = None        # AOTAutograd's, set while it compiles
        self.trace = None           # None: has no bundle
        if not settings.bundles:
            return
        started = time.perf_counter()
        with _without_bundle_on_failure():
            if _has_foreign_context():
                raise Untraceable("compiled autograd, DDP's optimizer or nested compilation")
            self.trace = trace_text(gm, example_inputs)
        self._trace_ms = (time.perf_counter() - started) * 1e3

    def find(self):
        """What the graph compiles to, ready to be called; None when the service does not know it."""
        if self.trace is None:
            return None
        with _without_bundle_on_failure():
            started = time.perf_counter()
            service = connect(self._settings.endpoint, self._settings.tenant)
            bundle = service.find_bundle(self.trace, self._settings)
            if bundle is None:
                records.count("bundle.miss")
                return None
            hit = _Hit(bundle, self._gm, self._settings)
            found = time.perf_counter()
            function = hit.as_function()
            first = hit.records[0]
            first.trace_ms = self._trace_ms
            first.wait_ms = (found - started) * 1e3
            first.load_ms = (time.perf_counter() - found) * 1e3
            records.count("bundle.hit")
            return function
        return None

    def explain(self) -> dict:
        """How the graph's text differs from the nearest stored one. StepOneError when nobody answers."""
        client = connect(self._settings.endpoint, self._settings.tenant).client
        return {"graph": None, "role": "trace"} | client.explain_bundle(self.trace, **request_options(self._settings))

    def add(self, role, graph):
        """Remembers a half that was submitted. One that comes after `seal` is another one than was described."""
        with self._lock:
            self._graphs[role] = graph
            if self._is_sealed:
                self._convention = None

    def seal(self, gradient_sources):
        """AOTAutograd is through: works out the convention, which is sent as soon as all halves are compiled."""
        self._is_sealed = True
        if self.trace is None or self.metadata is None:
            return
        forward = self._graphs.get("forward") or self._graphs.get("inference")
        backward = self._graphs.get("backward")
        with _without_bundle_on_failure():
            self._convention = describe(
                self.metadata, len(_placeholders(self._gm)), len(forward.outputs()),
                None if backward is None else backward.outputs(),
                None if backward is None else gradient_sources.by_gradient)
            for graph in self._graphs.values():
                graph.when_compiled(self._put_when_complete)

    def _put_when_complete(self):
        with self._lock:
            keys = {role: graph.sole_key() for role, graph in self._graphs.items()}
            if self._convention is None or not all(keys.values()):
                return
            convention, self._convention = self._convention, None
        with _without_bundle_on_failure():
            client = connect(self._settings.endpoint, self._settings.tenant).client
            client.put_bundle(self.trace, convention, keys, **request_options(self._settings))


class _Hit:
    """A bundle as a function of the captured graph's inputs."""

    def __init__(self, bundle, gm, settings):
        self._bundle = bundle
        self._gm = gm
        self._settings = settings
        self._convention = bundle.convention
        self.records = []
        self._check()

    def as_function(self):
        convention = self._convention
        metadata = metadata_of(convention)
        context = torch._guards.TracingContext.try_get()
        if context is not None:
            context.fw_metadata = metadata
        aot_config = AOTConfig(
            fw_compiler=None, bw_compiler=None, partition_fn=None, decompositions={}, num_params_buffers=0,
            aot_id=next(AOT_COUNTER), keep_inference_input_mutations=False)
        disable_amp = torch._C._is_any_autocast_enabled()
        if convention["has_backward"]:
            compiled = AOTDispatchAutograd.post_compile(AOTDispatchAutogradCompileSpec(
                compiled_fw_func=self._runner("forward"), compiled_bw_func=self._runner("backward"),
                maybe_subclass_meta=None, num_symints_saved_for_bw=0, backward_state_indices=[],
                disable_amp=disable_amp, indices_of_inps_to_detach=list(convention["detached_inputs"]),
                lazy_backward_info=None, bw_compiler=None, aot_config=aot_config, fw_metadata=metadata,
                try_save_cache_entry=None))
            sources = GradientSources([frozenset(g["tangents"]) if g["defined"] else None
                                       for g in convention["gradients"]], len(convention["tangents"]))
        else:
            compiled = RuntimeWrapper(indices_of_inps_to_detach=[], trace_joint=False, disable_amp=disable_amp) \
                .post_compile(self._runner("inference"), aot_config, runtime_metadata=metadata)
            sources = None
        call = torch._dynamo.disable(self._with_fallback(compiled), reason="stepone's compiled graph")
        return keep_undefined(call, sources) if sources is not None and sources.may_differ() else call

    def _with_fallback(self, compiled):
        gm = self._gm

        def call(*args):
            try:
                return compiled(list(args))
            except StepOneError as error:
                # Arguments are checked before anything runs, so the captured graph can take over.
                records.count("fallback.call refused")
                records.warn_once(f"call {error.code} {error.rule}", f"a call of a bundle ran eagerly: {error}")
                records.count("eager_calls")
                return gm.forward(*args)

        return call

    def _runner(self, role):
        """The compiled half as AOTAutograd's wrappers call it: with one list, which it empties."""
        record = records.new_record(role, self._settings.mode, ())
        record.executable = self._bundle.executable(role)
        record.answer = dict(self._bundle.report(role))
        record.status = "compiled"
        self.records.append(record)
        records.count(f"source.{record.answer['source']}")
        return record.executable

    def _check(self):
        """The service vouches for the convention; that it fits this graph and these plans is checked here."""
        convention = self._convention
        forward_role = "forward" if convention["has_backward"] else "inference"
        forward = self._bundle.executable(forward_role)
        num_inputs = len(_placeholders(self._gm))
        fits = (len(convention["inputs"]) == num_inputs == forward.num_inputs
                and convention["forward_outputs"] == forward.num_outputs)
        if fits and convention["has_backward"]:
            backward = self._bundle.executable("backward")
            fits = (backward.num_outputs == num_inputs == len(convention["gradients"])
                    and backward.num_inputs == convention["saved_outputs"] + len(convention["tangents"]))
        if not fits:
            raise _Misfit()


class _Misfit(StepOneError):
    code, rule, message = "DATA_LOSS", "bundle", "a bundle's calling convention does not fit its plans"


def _placeholders(gm):
    return gm.graph.find_nodes(op="placeholder")


def _has_foreign_context():
    """Contexts in which others read what AOTAutograd leaves behind."""
    context = torch._guards.TracingContext.try_get()
    return (compiled_autograd.in_compiled_autograd_region or compiled_autograd.compiled_autograd_enabled
            or torch._dynamo.config.compiled_autograd
            or context is not None and (context.ddp_optimizer_ctx is not None or context.fakify_first_call))


@contextlib.contextmanager
def _without_bundle_on_failure():
    """Whatever goes wrong with a bundle, the graph still has the way through AOTAutograd."""
    try:
        yield
    except Untraceable as error:
        records.count(f"not bundled.{error.reason}")
        records.log.debug("stepone: a graph goes through AOTAutograd each time: %s", error.reason)
    except StepOneError as error:
        # The same service will be asked to compile in a moment, and says then what is wrong with it.
        records.count(f"bundle.{error.code}")
        records.log.debug("stepone: no bundle: %s", error)
    except Exception:   # a fault of ours must not end a training
        records.count("bundle.fault in the client")
        records.log.debug("stepone: no bundle", exc_info=True)
