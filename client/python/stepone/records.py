"""What stepone did in this process: counters, one record per compiled graph, and warnings that are said once."""

import collections
import dataclasses
import logging
import threading

from stepone import _native

log = logging.getLogger("stepone")

_lock = threading.Lock()
_counters = collections.Counter()
_warned = set()
_records = []


@dataclasses.dataclass
class GraphRecord:
    """One graph under one binding of its symbolic sizes."""

    number: int
    role: str
    mode: str
    binding: tuple = ()
    status: str = "pending"        # "pending", "compiled" or "eager"
    eager_reason: str = ""
    ops: int = 0
    trace_ms: float = 0.0          # writing the captured graph's text; of the first graph of a bundle
    export_ms: float = 0.0
    wait_ms: float = 0.0           # the step stood still for this long
    load_ms: float = 0.0
    answer: dict = dataclasses.field(default_factory=dict)   # the request's own report (see _native.pyi)
    executable: object = None

    def as_dict(self):
        answer = self.answer
        values = {
            "graph": self.number, "role": self.role, "mode": self.mode, "sizes": list(self.binding),
            "status": self.status, "eager_reason": self.eager_reason, "ops": self.ops,
            "key": answer.get("graph_key", ""), "source": answer.get("source", ""),
            "phases_ms": {"trace": round(self.trace_ms, 2), "export": round(self.export_ms, 2), "wait": round(self.wait_ms, 2),
                          "load": round(self.load_ms, 2), "queue": answer.get("queue_ms", 0),
                          "compile": answer.get("compile_ms", 0), "request": answer.get("total_ms", 0)},
            "graph_ops": answer.get("graph_ops", 0), "fused_ops": answer.get("fused_ops", 0),
            "bytes_moved": answer.get("bytes_moved", 0), "fused_bytes_moved": answer.get("fused_bytes_moved", 0),
            "kernels": answer.get("kernels", []), "extern_ops": answer.get("extern_ops", []),
            "notes": answer.get("notes", []),
            "calls": dict(self.executable.counters()) if self.executable is not None else {},
        }
        values["fused_op_share"] = _share(values["fused_ops"], values["graph_ops"])
        values["fused_bytes_share"] = _share(values["fused_bytes_moved"], values["bytes_moved"])
        return values


class Report(dict):
    """A plain dictionary that prints as a table."""

    def __str__(self):
        rows = [("graph", "role", "source", "wait", "compile", "ops", "fused", "bytes fused", "kernels", "key")]
        for g in self["graphs"]:
            rows.append((
                str(g["graph"]), g["role"], g["source"] if g["status"] == "compiled" else g["status"],
                f"{g['phases_ms']['wait']:.0f} ms", f"{g['phases_ms']['compile']:.0f} ms", str(g["graph_ops"] or g["ops"]),
                f"{g['fused_op_share']:.0%}", f"{g['fused_bytes_share']:.0%}", str(len(g["kernels"])), g["key"][:12]))
        lines = _table(rows)
        extern = collections.Counter()
        for g in self["graphs"]:
            for entry in g["extern_ops"]:
                name, _, count = entry.partition(" x ")
                extern[name] += int(count or 1)
        if extern:
            lines.append("not fused: " + ", ".join(f"{name} x {n}" for name, n in extern.most_common(12)))
        for reason, graphs in self["eager"].items():
            lines.append(f"eager: {graphs} x {reason}")
        lines.extend(f"note: {note}" for note in self["notes"])
        return "\n".join(lines)


def report() -> Report:
    """Graphs in the order of their compilation, eager fall-backs by reason, notes, and all counters."""
    graphs = [record.as_dict() for record in all_records()]
    eager = collections.Counter(g["eager_reason"] for g in graphs if g["eager_reason"])
    notes = list(dict.fromkeys(note for g in graphs for note in g["notes"]))
    return Report(graphs=graphs, eager=dict(eager), notes=notes, counters=counters())


def counters() -> dict[str, int]:
    """Counters of this process by name: those of the plan executor (`kernel_launches`, ...) and those of the Python
    side (`graphs`, `eager_calls`, `fallback.<reason>`, `source.<where an artifact came from>`, ...)."""
    with _lock:
        own = dict(_counters)
    return {"graphs": 0, "eager_calls": 0, "swapped_in": 0} | own | dict(_native.counters())


def count(name: str, by: int = 1) -> None:
    with _lock:
        _counters[name] += by


def new_record(role: str, mode: str, binding: tuple) -> GraphRecord:
    with _lock:
        record = GraphRecord(len(_records), role, mode, binding)
        _records.append(record)
        _counters["graphs"] += 1
    return record


def all_records() -> list[GraphRecord]:
    with _lock:
        return list(_records)


def warn_once(cause: str, message: str) -> None:
    """Says it once per cause in the life of the process. Logged, not raised, also under `-W error`."""
    with _lock:
        if cause in _warned:
            return
        _warned.add(cause)
    log.warning("stepone: %s", message)


def reset() -> None:
    """Forgets records, counters and which warnings were given; for tests and benchmarks."""
    with _lock:
        _counters.clear()
        _warned.clear()
        _records.clear()
    _native.reset_counters()


def _share(part, whole):
    return part / whole if whole else 0.0


def _table(rows):
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
