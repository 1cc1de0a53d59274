"""One measurement of step_one.py: prints the seconds from the first call of the model to the end of its first step."""

import argparse
import json
import time

import torch
from _measure import workloads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("workload")
    parser.add_argument("backend", choices=("eager", "inductor", "stepone"))
    options = parser.parse_args()

    workload = workloads.get(options.workload)
    model, batch = workload.build(), workload.make_batch()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    started = time.perf_counter()
    runner = model if options.backend == "eager" else torch.compile(model, backend=options.backend)
    loss = workloads.sgd_step(workload, runner, optimizer, batch)
    result = {"seconds": time.perf_counter() - started, "loss": loss}
    if options.backend == "stepone":
        import stepone

        report = stepone.report()
        result["not_compiled"] = [g["eager_reason"] or g["status"] for g in report["graphs"] if g["status"] != "compiled"]
        result["sources"] = [g["source"] for g in report["graphs"]]
        result["wait_ms"] = sum(g["phases_ms"]["wait"] for g in report["graphs"])
        result["export_ms"] = sum(g["phases_ms"]["export"] for g in report["graphs"])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
