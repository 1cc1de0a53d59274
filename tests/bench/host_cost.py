"""What the service costs the host: time and memory of the client in a trainer's process, memory of server and workers,
and how much a running eager training is slowed while workers compile something that nobody waits for."""

import collections
import json
import os
import pathlib
import re
import socket
import statistics
import struct
import subprocess
import sys
import time

import torch
from _measure import emit, empty_server, parser, workloads

from stepone import _native
from stepone.config import Settings
from stepone.service import request_options

_BENCH = pathlib.Path(__file__).parent
_WARM_UP = 3
_TURN = 10   # steps in a row
_LATE = 10   # the priority of what may be swapped in later


def resident_mb(process) -> float:
    return int(re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{process}/status").read_text()).group(1)) / 1024


def server_process(endpoint) -> int:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(endpoint.removeprefix("unix:"))
        return struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def children(process) -> list[int]:
    found = []
    for task in pathlib.Path(f"/proc/{process}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def client_cost(endpoint, runs):
    """Medians over fresh processes that have torch and its tracing loaded already, as every compiling trainer has."""
    values = collections.defaultdict(list)
    for _ in range(runs):
        # Else torch imports part of the package by itself, through its entry point, before anything is measured.
        environment = os.environ | {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        command = [sys.executable, _BENCH / "_host_cost_process.py", endpoint]
        output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        costs = json.loads(output.splitlines()[-1])
        for unit in ("ms", "MB"):
            for step, cost in costs.items():
                values[step, unit].append(cost[unit])
            values["all", unit].append(sum(cost[unit] for cost in costs.values()))
    for (step, unit), measured in values.items():
        emit("host_cost", "client", step, "added to a trainer", statistics.median(measured), unit)


def capture(workload, endpoint):
    """The graphs of the workload's step, as the backend sends them. Compiles them once on the way."""
    graphs = []
    submit = _native.Client.submit

    def keep(client, builder, **options):
        graphs.append(builder)
        return submit(client, builder, **options)

    _native.Client.submit = keep
    try:
        runner = torch.compile(workload.build(), backend="stepone", options={"endpoint": endpoint})
        workload.loss(runner, workload.make_batch()).backward()
    finally:
        _native.Client.submit = submit
    return graphs


def compile_in_background(graphs, endpoint, tenant):
    """Requests that block nobody. No other tenant's kernels are reused, so each of them is compiled."""
    config = _native.Config.from_env()
    config.endpoint, config.tenant = endpoint, tenant
    client = _native.Client(config)
    options = request_options(Settings())
    return client, [client.submit(graph, priority=_LATE, blocking_step=False, **options) for graph in graphs]


def slow_down(workload, graphs, endpoint, rounds):
    """Milliseconds of eager steps, alone and while a compile ran from the step's beginning to its end, in turns."""
    model, batch = workload.build(), workload.make_batch()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step() -> float:
        started = time.perf_counter()
        workloads.sgd_step(workload, model, optimizer, batch)
        return (time.perf_counter() - started) * 1e3

    for _ in range(_WARM_UP):
        step()
    alone, beside = [], []
    for number in range(rounds):
        client, requests = compile_in_background(graphs, endpoint, f"background-{number}")
        for _ in range(_TURN):
            milliseconds = step()
            if all(request.done() for request in requests):
                break
            beside.append(milliseconds)
        for request in requests:
            request.cancel()
        del client   # waits for the end
        alone += [step() for _ in range(_TURN)][1:]   # the worker needs a moment to hear of it
    return alone, beside


def main():
    options = parser(__doc__)
    options.set_defaults(workloads=["bert"])
    options.add_argument("--runs", type=int, default=5, help="fresh processes for the client's cost")
    options.add_argument("--rounds", type=int, default=6, help="compiles beside the training")
    options.add_argument("--threads", type=int, default=2, help="OpenMP threads of the training")
    options = options.parse_args()
    torch.set_num_threads(options.threads)
    with empty_server() as server:
        process = server_process(server.endpoint)
        client_cost(server.endpoint, options.runs)
        emit("host_cost", "server", "idle", "resident", resident_mb(process), "MB")
        for worker in children(process):
            emit("host_cost", "worker", "idle", "resident", resident_mb(worker), "MB")
        for name in options.workloads:
            workload = workloads.get(name)
            graphs = capture(workload, server.endpoint)
            alone, beside = slow_down(workload, graphs, server.endpoint, options.rounds)
            emit("host_cost", name, "alone", "median step", statistics.median(alone), "ms")
            emit("host_cost", name, "beside a compile", "median step", statistics.median(beside), "ms")
            emit("host_cost", name, "alone", "fastest step", min(alone), "ms")
            emit("host_cost", name, "beside a compile", "fastest step", min(beside), "ms")
            emit("host_cost", name, "beside a compile", "steps measured", len(beside), "steps")
            slowed = statistics.median(beside) / statistics.median(alone) - 1
            emit("host_cost", name, "beside a compile", "slowed by", slowed * 100, "%")
            for worker in children(process):
                emit("host_cost", "worker", f"after {name}", "resident", resident_mb(worker), "MB")
            emit("host_cost", "server", f"after {name}", "resident", resident_mb(process), "MB")


if __name__ == "__main__":
    main()
