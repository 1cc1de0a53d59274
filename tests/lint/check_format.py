"""C++ is formatted by .clang-format, with one version of clang-format, so that nobody argues with another version's taste."""

import pathlib
import re
import subprocess

from findings import Finding, code_files

CLANG_FORMAT = "clang-format-19"


def find(root: pathlib.Path) -> list[Finding]:
    files = [path.relative_to(root).as_posix() for path in code_files(root, ".h", ".cc")]
    if not files:
        return []
    result = subprocess.run([CLANG_FORMAT, "--dry-run", *files], cwd=root, capture_output=True, text=True)
    if result.returncode != 0:
        return [Finding(".clang-format", 1, f"{CLANG_FORMAT} failed: {result.stderr.strip()[:500]}")]
    places = re.findall(r"^([^\s:]+):(\d+):\d+: warning: code should be clang-formatted", result.stderr, re.MULTILINE)
    lines: dict[str, list[int]] = {}
    for path, line in places:
        lines.setdefault(path, []).append(int(line))
    return [
        Finding(path, min(found), f"is not formatted ({len(found)} places from here on): {CLANG_FORMAT} -i does it")
        for path, found in sorted(lines.items())
    ]
