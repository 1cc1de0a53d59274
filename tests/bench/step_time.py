"""Median step time, eager, inductor and stepone taking turns in one process, so that they share its disturbances."""

import statistics
import time

import torch
from _measure import emit, empty_server, parser, workloads

_WARM_UP = 3
_TURN = 3     # steps in a row, of which the first one after a change is not counted


def runner(workload, backend, endpoint):
    """A function that makes one step."""
    model, batch = workload.build(), workload.make_batch()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    options = {"endpoint": endpoint} if backend == "stepone" else None
    call = model if backend == "eager" else torch.compile(model, backend=backend, options=options)
    return lambda: workloads.sgd_step(workload, call, optimizer, batch)


def measure(workload, backends, rounds, endpoint):
    """Milliseconds of each counted step by backend."""
    steps = {}
    for backend in backends:
        torch._dynamo.reset()
        steps[backend] = runner(workload, backend, endpoint)
        for _ in range(_WARM_UP):
            steps[backend]()
    times = {backend: [] for backend in backends}
    for _ in range(rounds):
        for backend, step in steps.items():
            for position in range(_TURN):
                started = time.perf_counter()
                step()
                if position:
                    times[backend].append((time.perf_counter() - started) * 1e3)
    return times


def main():
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--backends", nargs="+", default=["eager", "inductor", "stepone"])
    options = options.parse_args()
    with empty_server() as server:
        for name in options.workloads:
            times = measure(workloads.get(name), options.backends, options.rounds, server.endpoint)
            medians = {backend: statistics.median(values) for backend, values in times.items()}
            for backend, median in medians.items():
                emit("step_time", name, backend, "median step", median, "ms")
                emit("step_time", name, backend, "fastest step", min(times[backend]), "ms")
            others = [median for backend, median in medians.items() if backend != "stepone"]
            if "stepone" in medians and others:
                emit("step_time", name, "stepone", "of the faster of the others", medians["stepone"] / min(others), "ratio")
            if "stepone" in medians:
                import stepone

                emit("step_time", name, "stepone", "calls that ran eagerly", stepone.counters()["eager_calls"], "calls")


if __name__ == "__main__":
    main()
