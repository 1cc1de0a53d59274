"""One measurement of hit_path.py: prints the milliseconds that the backend took for all graphs of one step."""

import argparse
import json
import time

import stepone
import torch
from _measure import workloads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    workload = workloads.get(parser.parse_args().workload)
    stepone_backend = stepone.stepone_backend   # imports it, as torch.compile does before Dynamo begins
    spent = []

    def backend(gm, example_inputs):
        started = time.perf_counter()
        function = stepone_backend(gm, example_inputs)
        spent.append((time.perf_counter() - started) * 1e3)
        return function

    workload.loss(torch.compile(workload.build(), backend=backend), workload.make_batch()).backward()
    counters, graphs = stepone.counters(), stepone.report()["graphs"]
    phases = {name: sum(graph["phases_ms"][name] for graph in graphs) for name in ("trace", "wait", "load")}
    hits = counters.get("bundle.hit", 0)
    # The graphs of this process are not told before it ends; the next one finds them.
    deadline = time.monotonic() + 30
    while counters.get("bundle.miss", 0) > stepone.counters()["bundles_put"] and time.monotonic() < deadline:
        time.sleep(0.01)
    print(json.dumps({"backend": sum(spent), "graphs": hits, "others": len(spent) - hits} | phases))


if __name__ == "__main__":
    main()
