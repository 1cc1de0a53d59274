"""A graph on its way through the service: submitted early, awaited for a bounded time, run eagerly until it is there."""

import dataclasses
import os
import random
import threading
import time

import torch

from stepone import _native, records
from stepone.config import Settings
from stepone.export_graph import Unexportable, export_graph
from stepone.service import connect, request_options
from stepone.symbols import Binding, Symbols

StepOneError = _native.StepOneError

# Failures of circumstances: the same request may succeed later.
_RETRYABLE = frozenset(("UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "ABORTED", "CANCELLED"))
_FIRST_RETRY_S = 2.0
_LAST_RETRY_S = 60.0

# Lower runs sooner. What a step already waits for comes before what may be swapped in later.
_PRIORITY = {"forward": 0, "inference": 0, "joint": 0, "backward": 1}
_LATE_PRIORITY = 10


@dataclasses.dataclass
class _Specialisation:
    """The graph under one binding."""

    binding: Binding
    record: records.GraphRecord
    run: object = None                  # _native.Executable once it is there
    extra_inputs: tuple = ()
    request: object = None              # under way
    deadline: float = 0.0               # until when a step may wait for it (monotonic)
    has_waited: bool = False
    retry_at: float | None = None       # None: no further attempt
    failures: int = 0


class CompiledGraph:
    """Runs one FX graph. Calls may come from any thread.

    Never raises because of the service: whatever fails there, the FX graph itself runs, with one warning per cause.
    """

    def __init__(self, gm: torch.fx.GraphModule, role: str, settings: Settings, static_inputs=()):
        self.role = role
        self.num_nodes = len(gm.graph.nodes)
        self._gm = gm
        self._settings = settings
        self._static_inputs = frozenset(static_inputs)
        self._symbols = Symbols([node.meta.get("val") for node in gm.graph.nodes if node.op == "placeholder"])
        self._by_binding = {}
        self._only = None               # the single specialisation of a graph without symbols
        self._on_compiled = None
        self._lock = threading.Lock()

    def __deepcopy__(self, memo):
        # It rides in a GraphModule's meta, and AOTAutograd copies the backward module before it lowers it.
        return self

    def prefetch(self) -> None:
        """Submits the graph for the sizes that it was traced with."""
        binding = self._symbols.hint()
        if binding is not None:
            self._specialisation(binding)

    def outputs(self) -> list:
        """Output nodes of the graph, None where it has none."""
        return [node if isinstance(node, torch.fx.Node) else None for node in self._gm.graph.output_node().args[0]]

    def when_compiled(self, callback) -> None:
        """Calls `callback` after each binding that is compiled from now on, and now if one is there already."""
        with self._lock:
            self._on_compiled = callback
            is_there = any(entry.run is not None for entry in self._by_binding.values())
        if is_there:
            callback()

    def sole_key(self) -> str | None:
        """The artifact's key (hexadecimal) if there is just one that serves every call; None also before it is there."""
        entry = self._only
        if entry is None or entry.run is None or entry.extra_inputs:
            return None
        return entry.record.answer["graph_key"]

    def as_function(self):
        """What AOTAutograd expects of a compiler: a function of one list of arguments, which it empties."""
        def call(args):
            return self.run(args)
        call._boxed_call = True
        return call

    def run(self, args: list):
        """Runs the graph on `args`, which is emptied."""
        entry = self._only or self._specialisation(self._symbols.bind(args))
        if entry is None:
            return self._run_eagerly(args)
        run = entry.run
        if run is None:
            run = self._resolve(entry)
            if run is None:
                return self._run_eagerly(args)
            if self._on_compiled is not None:
                self._on_compiled()
        if entry.extra_inputs:
            args.extend(entry.extra_inputs)
        try:
            return run(args)
        except StepOneError as error:
            if not args:   # the plan had begun, and may have freed what it was given
                raise
            records.count("fallback.call refused")
            records.warn_once(f"call {error.code} {error.rule}", f"a call of {self._label(entry)} ran eagerly: {error}")
            if entry.extra_inputs:
                del args[-len(entry.extra_inputs):]
            return self._run_eagerly(args)

    def explain(self) -> list[dict]:
        """For each binding, how its key differs from the nearest stored one. StepOneError when nobody answers."""
        answers = []
        for entry in list(self._by_binding.values()):
            builder, _ = self._export(entry)
            client = connect(self._settings.endpoint, self._settings.tenant).client
            answer = dict(client.explain(builder, **request_options(self._settings)))
            answers.append({"graph": entry.record.number, "role": self.role} | answer)
        return answers

    def _specialisation(self, binding):
        """The entry of `binding`, submitted when it is new; None when there are too many."""
        entry = self._by_binding.get(binding)
        if entry is not None:
            return entry
        with self._lock:
            if binding in self._by_binding:
                return self._by_binding[binding]
            if len(self._by_binding) >= self._settings.max_bindings:
                records.count("fallback.too many shapes")
                records.warn_once("too many shapes", (
                    f"a {self.role} graph met more than {self._settings.max_bindings} combinations of sizes; further "
                    "ones run eagerly (STEPONE_MAX_BINDINGS)"))
                return None
            entry = _Specialisation(binding, records.new_record(self.role, self._settings.mode, binding))
            self._submit(entry)
            self._by_binding[binding] = entry
            if not self._symbols:
                self._only = entry
        return entry

    def _submit(self, entry, late=False):
        try:
            builder, exported = self._export(entry)
            entry.extra_inputs = exported.extra_inputs
            entry.record.ops = exported.num_ops
            self._dump(entry, "graph.pb", builder.serialize)
            entry.request = connect(self._settings.endpoint, self._settings.tenant).client.submit(
                builder, priority=_LATE_PRIORITY if late else _PRIORITY[self.role], blocking_step=not late,
                **request_options(self._settings))
            entry.deadline = time.monotonic() + self._settings.wait_s
            records.count("submitted")
        except Unexportable as error:
            self._give_up(entry, error.reason, str(error))
        except StepOneError as error:
            self._failed(entry, error)
        except Exception as error:   # a fault of ours must not end a training either
            records.log.debug("stepone: export failed", exc_info=True)
            self._give_up(entry, "fault in the client", f"{type(error).__name__}: {error}")

    def _export(self, entry):
        started = time.perf_counter()
        builder = _native.GraphBuilder(self.role)
        exported = export_graph(self._gm, builder, self._symbols.evaluator(entry.binding), self._static_inputs)
        entry.record.export_ms = (time.perf_counter() - started) * 1e3
        return builder, exported

    def _resolve(self, entry):
        """The executable if it is there by now, or comes within the time that a step may wait; else None."""
        with self._lock:
            if entry.run is not None:
                return entry.run
            if entry.request is None:
                if entry.retry_at is None or time.monotonic() < entry.retry_at:
                    return None
                self._submit(entry, late=True)
            if entry.request is None or not self._has_ended(entry):
                return None
            return self._take(entry)

    def _has_ended(self, entry):
        if entry.has_waited:
            return entry.request.done()
        entry.has_waited = True
        started = time.monotonic()
        service = connect(self._settings.endpoint, self._settings.tenant)
        ended = service.wait(entry.request, max(0.0, entry.deadline - started))
        entry.record.wait_ms += (time.monotonic() - started) * 1e3
        if not ended:
            records.count("fallback.not ready in time")
            records.warn_once("not ready in time", (
                f"{self._label(entry)} is not compiled after {time.monotonic() - started:.1f} s; it runs eagerly until "
                "it is (STEPONE_WAIT sets how long a step waits)"))
            entry.record.eager_reason = "not ready in time"
        return ended

    def _take(self, entry):
        request, entry.request = entry.request, None
        record = entry.record
        try:
            started = time.perf_counter()
            entry.run = request.executable()
            record.load_ms = (time.perf_counter() - started) * 1e3
        except StepOneError as error:
            self._failed(entry, error)
            return None
        record.answer = dict(request.report())
        record.executable = entry.run
        record.status = "compiled"
        if record.eager_reason:
            records.count("swapped_in")
            record.eager_reason = ""
        source = record.answer["source"]
        records.count(f"source.{source}")
        if source == "compiled":   # else the report is that of the request that led to the compile
            reused = sum(kernel["reused"] for kernel in record.answer["kernels"])
            records.count("kernels_reused", reused)
            records.count("kernels_compiled", len(record.answer["kernels"]) - reused)
        for note in record.answer["notes"]:
            records.log.info("stepone: %s", note)
        if self._settings.verbose:
            records.log.warning("stepone: %s from %s: %d of %d ops fused, waited %.0f ms", self._label(entry),
                               source, record.answer["fused_ops"], record.answer["graph_ops"], record.wait_ms)
        self._dump(entry, "plan.txt", lambda: entry.run.describe().encode())
        return entry.run

    def _failed(self, entry, error):
        """A request ended badly: try again later where that may help."""
        entry.failures += 1
        if error.code in _RETRYABLE:
            delay = min(_LAST_RETRY_S, _FIRST_RETRY_S * 2 ** (entry.failures - 1)) * random.uniform(0.8, 1.2)
            entry.retry_at = time.monotonic() + max(delay, error.retry_after_ms / 1e3)
            entry.has_waited = True   # training goes on; the artifact is swapped in when it comes
            outlook = "it is compiled as soon as the service can be reached again"
        else:
            entry.retry_at = None
            outlook = "it stays eager"
        entry.record.status, entry.record.eager_reason = "eager", error.code
        known = f"; known: {', '.join(error.known_values)}" if error.known_values else ""
        at = f" at node {error.node}" if error.node else ""
        reproducer = f" (reproducer {error.reproducer_id})" if error.reproducer_id else ""
        records.count(f"fallback.{error.code}")
        records.warn_once(f"{error.code} {error.rule}", (
            f"{self._label(entry)} runs eagerly, {outlook}. {error.code}{at}: {error.message}{known}{reproducer}"))

    def _give_up(self, entry, reason, detail):
        entry.retry_at = None
        entry.record.status, entry.record.eager_reason = "eager", reason
        records.count(f"fallback.{reason}")
        records.warn_once(reason, f"{self._label(entry)} runs eagerly: {detail}")

    def _run_eagerly(self, args):
        records.count("eager_calls")
        values = tuple(args)
        args.clear()
        return self._gm.forward(*values)

    def _label(self, entry):
        sizes = f" with sizes {', '.join(map(str, entry.binding))}" if entry.binding else ""
        return f"graph {entry.record.number} ({self.role}{sizes})"

    def _dump(self, entry, suffix, content):
        if not self._settings.dump_dir:
            return
        os.makedirs(self._settings.dump_dir, exist_ok=True)
        name = f"{os.getpid()}-{entry.record.number:03}-{self.role}.{suffix}"
        with open(os.path.join(self._settings.dump_dir, name), "wb") as file:
            file.write(content())
