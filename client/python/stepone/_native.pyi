"""The C++ client: capture -> compile service -> verified kernels -> plan executor.

Importing it needs `torch` imported first. All calls may be made from any thread. Calls that wait or compute release
the GIL. Failures of the service raise `StepOneError`; failures of a running plan raise what ATen would raise
(`IndexError`, `RuntimeError`, `ZeroDivisionError`).
"""

from typing import Any, Literal, Optional, Sequence, Union

import torch

KERNEL_ABI_VERSION: int

Mode = Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"]
Role = Literal["forward", "backward", "joint", "inference"]

class StepOneError(RuntimeError):
    """What the service (or the way to it) answered."""

    code: str            # "UNAVAILABLE", "INVALID_ARGUMENT", ... (names of absl::StatusCode)
    message: str
    node: str            # graph node at fault, or ""
    rule: str            # rule that it breaks, or ""
    compiler_pass: str
    reproducer_id: str
    retry_after_ms: int
    known_values: list[str]

class Value:
    """A value of one GraphBuilder. Only valid for the builder that made it."""

    @property
    def index(self) -> int: ...

class SymExpr:
    """A symbolic integer in prefix notation over the builder's symbols: SymExpr("(* s0 (+ s1 1))")."""

    def __init__(self, expr: str) -> None: ...
    @property
    def expr(self) -> str: ...

SymInt = Union[int, SymExpr]

# An op's argument, by Python type:
#   None                        absent
#   Value                       tensor, symbolic integer or host scalar of the graph
#   list of Value|None          list of tensors (Tensor[], Tensor?[])
#   bool int float complex str  as they are; SymExpr for a symbolic int. A number where the schema says Tensor is a
#                               "wrapped number" (aten.mul.Tensor(x, 0.5)): it takes part in type promotion as such
#   torch.dtype, torch.device, torch.layout, torch.memory_format
#   list of int|SymExpr|Value   ints (a Value must be a symbolic integer); of float; of bool; of str.  An empty list fits
#                               any list type. A list that mixes int and float is a list of floats.
Argument = Any

class GraphBuilder:
    """Builds one graph for the wire. Not thread-safe. Calls follow program order: a value exists before it is used."""

    def __init__(self, role: Role) -> None: ...
    def add_symbol(self, name: str, hint: int, min: int, max: int) -> None: ...
    def add_tensor(
        self,
        dtype: torch.dtype,
        sizes: Sequence[SymInt],
        strides: Sequence[SymInt],
        storage_offset: SymInt = 0,
        device: Union[str, torch.device] = "cpu",
        layout: str = "",            # "" is strided
        name: str = "",
    ) -> Value: ...
    def add_sym_int(self, value: SymInt, name: str = "") -> Value: ...
    def add_host_scalar(self, name: str = "") -> Value:
        """A float or bool on the host whose value is known only at run time."""
    def add_input(self, value: Value, static: bool = False) -> None:
        """Inputs in calling order. `static`: does not move between two steps (parameters, buffers)."""
    def add_constant(self, value: Value, tensor: torch.Tensor) -> None:
        """Copies the bytes of a strided CPU tensor; `value` must have been added as a contiguous tensor."""
    def add_node(
        self,
        op: str,                                     # "aten.add.Tensor"
        args: Sequence[tuple[str, Argument]],        # (parameter name, argument), complete and in schema order
        results: Sequence[Optional[Value]],          # None: nobody uses it
        results_are_list: bool = False,
        result_aliases: Sequence[Optional[Value]] = (),
        mutated: Sequence[Value] = (),
        uses_rng: bool = False,
        name: str = "",
        diagnostics: str = "",
    ) -> None: ...
    def add_output(self, output: Union[Value, int, SymExpr, None]) -> None: ...
    @property
    def num_nodes(self) -> int: ...
    def serialize(self) -> bytes:
        """The graph as protobuf bytes (stepone.v1.Graph), for dumps and tests."""

class Config:
    """How to reach a service. All fields may be set until a Client is made from it."""

    endpoint: str              # "host:port", "unix:/path" or "" = the user's own local server, started when needed
    home: str                  # STEPONE_HOME; "" = $XDG_STATE_HOME/stepone or ~/.local/state/stepone
    server_path: str           # stepone-server executable for the local server; "" = beside the package, then PATH
    server_arguments: list[str]
    trusted_keys: list[bytes]  # raw ed25519 public keys (32 bytes each); the local server's key is added by itself
    trusted_keys_file: str     # one key a line, hexadecimal or base64
    tls_ca_file: str           # TLS to a TCP endpoint when set; with cert and key: mutual TLS
    tls_cert_file: str
    tls_key_file: str
    token_file: str            # bearer token sent with each call
    tenant: str
    job: str
    rank: int
    isa: str                   # pretend to be other hardware: "x86-64-v3"; "" = what this host has
    connect_timeout_ms: int    # until the first healthy connection (default 5000)
    request_timeout_ms: int    # whole request, retries included (default 300000)
    server_start_timeout_ms: int  # for the local server to become healthy (default 10000)
    def __init__(self) -> None: ...
    @staticmethod
    def from_env() -> "Config":
        """Fields from STEPONE_* variables (client/README.md lists them); ValueError for one that does not parse."""

class Request:
    """A compile that is under way. Dropping it does not cancel it."""

    def wait(self, timeout_s: float) -> bool:
        """True when it has ended, well or badly. Releases the GIL."""
    def done(self) -> bool: ...
    def cancel(self) -> None: ...
    def executable(self) -> "Executable":
        """Waits for the end. StepOneError when it failed. Each call returns the same object."""
    def error(self) -> Optional[StepOneError]:
        """None while it runs and after success."""
    def events(self) -> list[dict[str, Any]]:
        """So far: {"kind": "accepted"|"queued"|"stage"|"retry"|"done"|"failed", "at_ms": float, ...}."""
    def report(self) -> dict[str, Any]:
        """After success. Keys: graph_key (hex), source ("compiled", "joined", "memory", "disk", "remote"), queue_ms,
        compile_ms, total_ms (as seen by the client), attempts, graph_ops, fused_ops, bytes_moved, fused_bytes_moved,
        extern_ops (list of str), notes (list of str), passes (list of dict), kernels (list of dict: name, source_ops,
        bytes_moved, flops, reused, codegen_ms, compile_ms, link_ms, object (hex)), fusions (list of dict),
        compiler_fingerprint, object_bytes, arena_bytes, worker_cpu_ms, worker_total_ms."""

class Executable:
    """A plan with mapped kernels. Immutable; any number of threads may call it at once."""

    def __call__(self, args: list[Any]) -> list[Any]:
        """Runs the plan. `args` holds tensors, ints (symbolic sizes), floats and bools in calling order. The list is
        emptied (the "boxed" calling convention), so that inputs that only it keeps alive are freed after their last
        use. Returns tensors, ints and None. A StepOneError means that the arguments are not those that the plan was
        compiled for; it is raised before the list is touched, so the caller can still run the graph eagerly."""
    _boxed_call: bool
    @property
    def num_inputs(self) -> int: ...
    @property
    def num_outputs(self) -> int: ...
    @property
    def num_launches(self) -> int: ...   # fused kernels in the plan
    @property
    def num_calls(self) -> int: ...      # ATen steps in the plan
    @property
    def arena_bytes(self) -> int: ...
    def counters(self) -> dict[str, int]:
        """runs, kernel_launches, extern_calls, restrided, errors of this executable."""
    def describe(self) -> str:
        """The plan as text, one step a line."""
    def set_profiling(self, on: bool) -> None: ...
    def profile(self) -> list[dict[str, Any]]:
        """Per step since profiling was switched on: {"step", "kind", "name", "calls", "total_us"}."""

class Bundle:
    """What a captured graph became, verified and mapped. Guarded by the GIL."""

    @property
    def trace_key(self) -> str: ...      # hexadecimal
    @property
    def roles(self) -> list[str]: ...    # ["forward", "backward"] or ["inference"]
    @property
    def convention(self) -> dict[str, Any]:
        """proto/stepone/v1/bundle.proto's Convention: all plain fields present, enums by name, 64-bit integers as
        text."""
    def executable(self, role: Role) -> Executable: ...
    def report(self, role: Role) -> dict[str, Any]:
        """As Request.report()."""

class Client:
    """A connection to one service. Makes no call before the first request; then connects (and starts the local server
    when no endpoint is configured) in the background."""

    def __init__(self, config: Config) -> None: ...
    def submit(
        self,
        graph: GraphBuilder,
        *,
        mode: Mode = "default",
        backend: str = "stepone",
        deterministic: bool = False,
        fallback_random: bool = False,
        disable_fusion: bool = False,
        framework_version: str = "",
        backend_options: dict[str, str] = {},
        deadline_ms: int = 0,
        priority: int = 0,
        recompile: bool = False,
        do_not_cache: bool = False,
        report: bool = True,
        blocking_step: bool = False,
    ) -> Request:
        """Returns at once. The builder may be dropped or reused for nothing else."""
    def find(self, graph: GraphBuilder, **options: Any) -> Optional[Request]:
        """Options as for submit. A finished Request on a hit, None on a miss. Waits; StepOneError when the service can't
        be reached."""
    def explain(self, graph: GraphBuilder, **options: Any) -> dict[str, Any]:
        """{"graph_key", "found", "nearest_key", "differences": [{"field", "requested", "nearest"}]}"""
    def find_bundle(self, trace: bytes, *, timeout_s: float, **options: Any) -> Optional[Bundle]:
        """What the captured graph with this text became; None when the service does not know it. Options as for
        submit. The answer must come within `timeout_s`; connecting, the first time, takes as long as for a request."""
    def put_bundle(self, trace: bytes, convention: dict[str, Any], graph_keys: dict[str, str], **options: Any) -> None:
        """Tells what the captured graph became: `graph_keys` by role, hexadecimal. Returns at once; failures show in
        counters(). ValueError for a convention with a field or type that its message lacks, and for graph keys that are
        none."""
    def explain_bundle(self, trace: bytes, **options: Any) -> dict[str, Any]:
        """As explain(): the lines of the nearest stored trace that differ."""
    def connect(self) -> None:
        """Begins to connect in the background, and to start the local server if that is the one to use."""
    def capabilities(self) -> dict[str, Any]:
        """{"server_version", "compiler_fingerprint", "backends": [...], "modes": [...], "targets": [...], ...}"""
    @property
    def endpoint(self) -> str: ...       # "" until the local server is known
    def circuit_open(self) -> bool:
        """True while requests fail at once because the service was found dead a moment ago."""

def host_target(isa: str = "") -> dict[str, Any]:
    """What this host asks the service to compile for: device_type, isa, features, vector_bytes, l1d_bytes, l2_bytes."""

def counters() -> dict[str, int]:
    """Process-wide: runs, kernel_launches, extern_calls, restrided, errors, output_pool_hits, output_pool_misses,
    output_pool_bytes, arena_hits, arena_misses, arena_bytes, objects_mapped, objects_shared, requests, retries,
    verify_failures, bundle_hits, bundle_misses, bundles_put, bundle_put_failures."""

def reset_counters() -> None: ...
