"""Starts a server with an empty cache and trains the same small GPT-2 three times beside it, each in a new process:
eagerly, through the service while nothing is cached, and again while everything is. Prints what came of it."""

import argparse
import collections
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import stepone

_SERVER = pathlib.Path(stepone.__file__).parent / "bin" / "stepone-server"


def main():
    parser = argparse.ArgumentParser(prog="python -m stepone.demo", description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="training steps of each run (default: 60)")
    parser.add_argument("--home", type=pathlib.Path, help="where server, graphs and log go (default: a new folder)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))   # so that the server is stopped then too
    home = prepare(options.home)
    print(f"stepone {stepone.__version__}: a GPT-2 of 4 layers on {len(text())} bytes of text, {options.steps} steps, "
          "three times", flush=True)
    server = start_server(home)
    try:
        results = {}
        for name, backend in (("eager", ""), ("stepone, empty cache", "stepone"), ("stepone, new process", "stepone")):
            print(f"== {name} ...", flush=True)
            results[name] = run_job(home, backend, options.steps, f"job{len(results)}")
    finally:
        stop(server)
    print_table(results)
    print_places(home, results)
    return check(results)


def text():
    return pathlib.Path(__file__).with_name("text.txt").read_bytes()


def prepare(home):
    """An empty private folder; its path is short because a unix socket's name is."""
    if home is None:
        return pathlib.Path(tempfile.mkdtemp(prefix="stepone-demo-", dir="/tmp"))
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True, mode=0o700)
    return home.resolve()


def start_server(home):
    address = f"unix:{home}/server.sock"
    log = open(home / "server.log", "wb")
    process = subprocess.Popen([_SERVER, "--listen", address, "--state-dir", home / "server"], stdout=log, stderr=log)
    while not accepts(home / "server.sock"):
        if process.poll() is not None:
            raise SystemExit(f"stepone-server ended with {process.returncode}:\n{(home / 'server.log').read_text()}")
        time.sleep(0.05)
    print(f"== server: {address}", flush=True)
    return process


def accepts(path):
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def stop(server):
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()


def run_job(home, backend, steps, name):
    environment = os.environ | {"STEPONE_ENDPOINT": f"unix:{home}/server.sock", "STEPONE_DUMP_DIR": str(home / name)}
    result = home / f"{name}.json"
    command = [sys.executable, "-m", "stepone.demo.job", "--backend", backend, "--steps", str(steps), "--result", result]
    with open(home / f"{name}.log", "wb") as log:
        status = subprocess.run(command, env=environment, stdout=log, stderr=log).returncode
    if status:
        raise SystemExit(f"the job ended with {status}:\n{(home / f'{name}.log').read_text()}")
    return json.loads(result.read_text())


def summary(result):
    """The cells of one column."""
    cells = {
        "end of step one": f"{result['first_step_s']:.1f} s",
        "steps per second after it": f"{result['steps_per_s']:.2f}",
        "first logged loss": f"{result['first_loss']:.4f}",
        "final loss": f"{result['final_loss']:.4f}",
    }
    if "report" not in result:
        return cells
    graphs, counters = result["report"]["graphs"], result["report"]["counters"]
    sources = collections.Counter(g["source"] or g["status"] for g in graphs)
    fused, total = sum(g["fused_ops"] for g in graphs), sum(g["graph_ops"] for g in graphs)
    moved = sum(g["bytes_moved"] for g in graphs)
    kernels = [kernel for g in graphs if g["source"] == "compiled" for kernel in g["kernels"]]
    return cells | {
        "graphs": ", ".join(f"{n} {source}" for source, n in sources.items()),
        "ops fused": f"{fused} of {total}",
        "bytes moved by fused kernels": f"{sum(g['fused_bytes_moved'] for g in graphs) / max(moved, 1):.0%}",
        "kernels compiled": str(sum(not kernel["reused"] for kernel in kernels)),
        "kernels reused while compiling": str(sum(kernel["reused"] for kernel in kernels)),
        "cache hits": str(sum(g["source"] in ("memory", "disk", "remote") for g in graphs)),
        "kernel launches": str(counters["kernel_launches"]),
        "calls that ran eagerly": str(counters["eager_calls"]),
    }


def print_table(results):
    columns = {name: summary(result) for name, result in results.items()}
    rows = list(dict.fromkeys(row for cells in columns.values() for row in cells))
    label = max(map(len, rows))
    widths = [max(len(name), *(len(cell) for cell in cells.values())) for name, cells in columns.items()]
    print("\n" + " " * label + "".join(f"  {name:>{width}}" for name, width in zip(columns, widths)))
    for row in rows:
        print(f"{row:<{label}}" + "".join(f"  {cells.get(row, '-'):>{width}}"
                                          for cells, width in zip(columns.values(), widths)))


def print_places(home, results):
    print("\nGraphs of the second run, as stepone.report() prints them:")
    print(results["stepone, empty cache"]["table"])
    print(f"\nWhere to look:\n  server's log      {home}/server.log\n  jobs' logs        {home}/job*.log\n"
          f"  graphs and plans  {home}/job1/*.graph.pb and *.plan.txt")
    opt = _SERVER.with_name("stepone-opt")
    graph = next(iter(sorted((home / "job1").glob("*forward.graph.pb"))), None)
    if opt.exists() and graph:
        print(f"  kernels' source   {opt} --format graph --show source {graph}")


def check(results):
    """0 when the runs agree and the service did its part."""
    losses = [result["final_loss"] for result in results.values()]
    cold, hit = results["stepone, empty cache"]["report"], results["stepone, new process"]["report"]
    problems = []
    if max(losses) - min(losses) > 0.1:
        problems.append(f"final losses differ: {losses}")
    for name, report in (("first", cold), ("second", hit)):
        if report["counters"]["kernel_launches"] == 0 or report["eager"]:
            problems.append(f"the {name} run was not all compiled: {report['eager']}")
    if any(g["source"] == "compiled" for g in hit["graphs"]):
        problems.append("the second run compiled what the first one had compiled")
    for problem in problems:
        print(f"PROBLEM: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
