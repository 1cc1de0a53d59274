"""No unfinished business and nothing of one particular machine or network in the tree."""

import pathlib
import re

from findings import Finding, project_files

# pattern -> what to do instead. Written in two halves so that this file passes its own check.
BANNED = {
    r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b": "finish it, or describe the limit in the README",
    r"(?<![\w.$})*-])/(wo" r"rk|ro" r"ot)/": "a path of one machine; use a path relative to the project or to the user's directories",
    r"\b(py" r"pi\.org|pythonho" r"sted\.org|download\.py" r"torch\.org|deb\.deb" r"ian\.org|security\.deb" r"ian\.org)\b": (
        "a registry's host; the package manager's own configuration knows where packages are"
    ),
}
TEXT = (
    ".h", ".cc", ".c", ".def", ".py", ".pyi", ".proto", ".md", ".txt", ".cmake", ".json", ".yaml", ".yml", ".toml", ".sh", ".tg",
    ".textproto", ".service", ".conf", ".tpl", "Makefile", "Dockerfile", ".clang-format", ".clang-tidy", ".gitignore", ".ci/run",
)  # fmt: skip
# path -> why its text is not ours to change
NOT_OURS = {"LICENSE": "a licence's text"}


def find(root: pathlib.Path) -> list[Finding]:
    findings = []
    for path in project_files(root):
        name = path.relative_to(root).as_posix()
        if not name.endswith(TEXT) or name in NOT_OURS:
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, instead in BANNED.items():
                match = re.search(pattern, line)
                if match:
                    findings.append(Finding(name, number, f"contains {match.group(0)!r}: {instead}"))
    return findings
