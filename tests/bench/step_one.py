"""Seconds to the end of step one, each in a new process: eager, inductor cold and warm, stepone cold (a server with an
empty cache) and hit (the same server). Counted from the first call of the built model; imports are not in it."""

import json
import os
import subprocess
import sys

from _measure import ROOT, emit, empty_folder, empty_server, parser


def measure(workload, backend, **environment):
    done = subprocess.run([sys.executable, ROOT / "tests/bench/_step_one_process.py", workload, backend],
                          env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    options = parser(__doc__)
    options.add_argument("--configs", nargs="+", default=["eager", "inductor", "stepone"],
                         choices=["eager", "inductor", "stepone"])
    options = options.parse_args()
    for workload in options.workloads:
        results = {}
        if "eager" in options.configs:
            results["eager"] = measure(workload, "eager")
        if "inductor" in options.configs:
            with empty_folder() as folder:
                for config in ("inductor_cold", "inductor_warm"):
                    results[config] = measure(workload, "inductor", TORCHINDUCTOR_CACHE_DIR=folder)
        if "stepone" in options.configs:
            with empty_server() as server:
                for config in ("stepone_cold", "stepone_hit"):
                    results[config] = measure(workload, "stepone", STEPONE_ENDPOINT=server.endpoint)
        for config, result in results.items():
            emit("step_one", workload, config, "seconds to the end of step one", result["seconds"], "s")
            if "wait_ms" in result:
                emit("step_one", workload, config, "waited for the service", result["wait_ms"] / 1e3, "s")
                emit("step_one", workload, config, "graphs that ran eagerly", len(result["not_compiled"]), "graphs")
        for ours, theirs in (("stepone_cold", "inductor_cold"), ("stepone_hit", "inductor_warm")):
            if {ours, theirs} <= results.keys():
                ratio = results[ours]["seconds"] / results[theirs]["seconds"]
                emit("step_one", workload, ours, f"of {theirs.replace('_', ' ')}", ratio, "ratio")


if __name__ == "__main__":
    main()
