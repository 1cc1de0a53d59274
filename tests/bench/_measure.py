"""What the Python benchmarks share: JSON lines, command line, and a server with an empty cache."""

import argparse
import contextlib
import json
import pathlib
import shutil
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/python")]

import workloads  # noqa: E402
from server import Server  # noqa: E402


def emit(bench, case, config, metric, value, unit):
    """One result, on standard output at once."""
    line = {"bench": bench, "case": case, "config": config, "metric": metric, "value": round(value, 4), "unit": unit}
    print(json.dumps(line), flush=True)


def parser(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--workloads", nargs="+", choices=workloads.ALL, default=list(workloads.ALL), metavar="NAME")
    return parser


@contextlib.contextmanager
def empty_server():
    """A server of its own that has compiled nothing yet."""
    folder = tempfile.mkdtemp(prefix="stepone-bench-", dir="/tmp")
    try:
        with Server(folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def empty_folder():
    folder = tempfile.mkdtemp(prefix="stepone-bench-", dir="/tmp")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
