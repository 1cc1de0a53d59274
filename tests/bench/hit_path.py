"""What stepone itself takes of a hit: from Dynamo's call of the backend to a function that can be called, in a new process
whose graphs are all known to the service. Milliseconds for all graphs of a workload together, by phase."""

import json
import os
import statistics
import subprocess
import sys

from _measure import ROOT, emit, empty_server, parser

_PHASES = {"trace": "writing the graph's text", "wait": "look-up, verification and mapping", "load": "wrapping"}


def run(workload, server):
    done = subprocess.run([sys.executable, ROOT / "tests/bench/_hit_path_process.py", workload], text=True, check=True,
                          env=os.environ | {"STEPONE_ENDPOINT": server.endpoint}, stdout=subprocess.PIPE)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=5)
    options = options.parse_args()
    for workload in options.workloads:
        with empty_server() as server:
            run(workload, server)
            results = [run(workload, server) for _ in range(options.runs)]
        emit("hit_path", workload, "hit", "graphs", results[0]["graphs"], "graphs")
        emit("hit_path", workload, "hit", "graphs that took another way", results[0]["others"], "graphs")
        for name in ("backend", *_PHASES):
            emit("hit_path", workload, "hit", _PHASES.get(name, "all of it"),
                 statistics.median(result[name] for result in results), "ms")


if __name__ == "__main__":
    main()
