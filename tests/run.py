#!/usr/bin/env python3
"""Runs ctest and pytest and closes with their own summaries; `make test` calls it after the build.

When everything has passed, the digest of the whole tree (every file that git tracks or would track, and the Python
packages) is kept in the build folder. A later run on the very same tree repeats the summaries instead of the tests, and
says so; --force runs them again.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import platform
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SKIPPED_FOLDERS = {".git", ".venv", "__pycache__", ".pytest_cache", "dist"}


def tree_files() -> list[pathlib.Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True
    )
    if listing.returncode == 0:
        return sorted(ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return sorted(
        path
        for path in ROOT.rglob("*")
        if not SKIPPED_FOLDERS & set(path.relative_to(ROOT).parts) and not path.relative_to(ROOT).parts[0].startswith("build")
    )


def tree_digest() -> str:
    digest = hashlib.sha256(f"{sys.version} {platform.platform()}".encode())
    for path in [*tree_files(), ROOT / ".venv/requirements.stamp"]:
        if path.is_file():
            digest.update(f"\0{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def run(title: str, command: list[str]) -> tuple[int, list[str]]:
    """Runs with the output passed on as it comes; returns the status and the last lines of the output."""
    print(f"== {title}: {' '.join(command)}", flush=True)
    lines: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines = [*lines[-200:], line.rstrip("\n")]
    return process.returncode, lines


def ctest_closing(lines: list[str]) -> list[str]:
    start = next((i for i, line in enumerate(lines) if "tests passed," in line), max(len(lines) - 3, 0))
    return [line for line in lines[start:] if line.strip()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--jobs", default="1")
    parser.add_argument("--force", action="store_true", help="run even what has passed on this very tree")
    args = parser.parse_args()

    record_path = ROOT / args.build / "tests-passed.json"
    digest = tree_digest()
    if not args.force and record_path.exists():
        record = json.loads(record_path.read_text())
        if record["digest"] == digest:
            print(f"== Tests: nothing has changed since all of them passed at {record['when']}, which took")
            print(f"   {record['seconds']:.0f} s and closed as below. FORCE=1 runs them again.")
            print("\n".join(record["closing"]))
            return 0

    start = time.monotonic()
    gpu = pathlib.Path("/dev/nvidiactl").exists()
    ctest = ["ctest", "--test-dir", args.build, "--output-on-failure", "--no-tests=error", "-j", args.jobs]
    if not gpu:
        print("== Tests: no NVIDIA device here, so cases labelled gpu are left out")
    ctest_status, ctest_lines = run("C++ tests", ctest if gpu else [*ctest, "-LE", "gpu"])
    pytest_status, pytest_lines = run("Python tests", [sys.executable, "-m", "pytest", "tests/python", "tests/deploy", "tests/lint", "-q"])
    closing = [*ctest_closing(ctest_lines), pytest_lines[-1] if pytest_lines else "pytest printed nothing"]
    if ctest_status or pytest_status:
        record_path.unlink(missing_ok=True)
        print("== Tests: FAILED, in short:")
        print("\n".join(closing), flush=True)
        return 1
    record = {
        "digest": digest,
        "when": datetime.datetime.now().isoformat(timespec="seconds"),
        "seconds": time.monotonic() - start,
        "closing": closing,
    }
    if tree_digest() == digest:
        record_path.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
