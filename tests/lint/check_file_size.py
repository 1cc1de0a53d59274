"""Files stay small enough to be read: headers up to 250 lines, sources up to 800, and no grab-bag names."""

import pathlib

from findings import Finding, code_files

BUDGETS = {".h": 250, ".cc": 800, ".py": 800, ".c": 800}
GRAB_BAGS = {"utils", "util", "common", "helpers", "misc"}
# path -> why it may be longer
EXCEPTIONS: dict[str, str] = {}


def find(root: pathlib.Path) -> list[Finding]:
    findings = []
    for path in code_files(root, *BUDGETS):
        name = path.relative_to(root).as_posix()
        lines = len(path.read_text().splitlines())
        budget = BUDGETS[path.suffix]
        if lines > budget and name not in EXCEPTIONS:
            findings.append(Finding(name, budget + 1, f"has {lines} lines; the budget of a {path.suffix} file is {budget}"))
        if path.stem.removesuffix("_test") in GRAB_BAGS:
            findings.append(Finding(name, 1, f"is called {path.stem}: name it after what it holds"))
    return findings
