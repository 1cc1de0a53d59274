"""What every lint shares: which files are ours, and how a finding is printed."""

import dataclasses
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("proto", "cache", "compiler", "server", "client", "deploy", "tests")


@dataclasses.dataclass(frozen=True)
class Finding:
    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def project_files(root: pathlib.Path, *suffixes: str) -> list[pathlib.Path]:
    """Files that git tracks or would track (all files where there is no git), with one of the suffixes if any is given."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=root, capture_output=True
    )
    if listing.returncode == 0:
        paths = [root / name for name in listing.stdout.decode().split("\0") if name]
    else:
        paths = list(root.rglob("*"))
    return sorted(p for p in paths if p.is_file() and not p.is_symlink() and (not suffixes or p.name.endswith(suffixes)))


def code_files(root: pathlib.Path, *suffixes: str) -> list[pathlib.Path]:
    return [p for p in project_files(root, *suffixes) if p.relative_to(root).parts[0] in CODE_FOLDERS]


def includes(path: pathlib.Path) -> list[tuple[int, str]]:
    """(line, header) of each #include, project and system headers alike."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            found.append((number, match.group(1)))
    return found
