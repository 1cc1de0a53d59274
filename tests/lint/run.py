#!/usr/bin/env python3
"""Runs every check_*.py of this folder over the project; prints file:line: what is wrong. `run.py NAME...` runs some."""

import importlib
import pathlib
import sys

from findings import ROOT


def main() -> int:
    here = pathlib.Path(__file__).resolve().parent
    names = sys.argv[1:] or sorted(path.stem for path in here.glob("check_*.py"))
    total = 0
    for name in names:
        check = importlib.import_module(name)
        findings = check.find(ROOT)
        total += len(findings)
        for finding in findings:
            print(finding)
        print(f"lint: {name}: {'ok' if not findings else f'{len(findings)} findings'} ({check.__doc__.splitlines()[0]})")
    print(f"lint: {'passed' if not total else f'FAILED, {total} findings'}")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
