"""One measurement of host_cost.py: what a trainer's process pays for the client, step by step. Prints JSON."""

import argparse
import importlib
import json
import pathlib
import re
import time

import torch
import torch._dynamo
import torch._functorch.aot_autograd  # noqa: F401  (every backend that trains needs it)


def resident_mb() -> float:
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status).group(1)) / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("endpoint")
    endpoint = parser.parse_args().endpoint
    torch.ones(1).add_(1)
    costs = {}

    def measure(name, action):
        before, started = resident_mb(), time.perf_counter()
        result = action()
        costs[name] = {"ms": (time.perf_counter() - started) * 1e3, "MB": resident_mb() - before}
        return result

    measure("import stepone", lambda: importlib.import_module("stepone.hf").install())   # as torch does at its start
    measure("import stepone.backend", lambda: importlib.import_module("stepone.backend"))
    service = importlib.import_module("stepone.service")
    measure("first client", lambda: service.connect(endpoint, None).client.capabilities())
    print(json.dumps(costs))


if __name__ == "__main__":
    main()
