"""Every top-level folder has a README, and links and `paths/like/this.cc` in the documents lead somewhere."""

import pathlib
import re

from findings import CODE_FOLDERS, Finding, project_files

LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)[^)]*\)")
# A path in back-quotes that begins with a top-level folder and has no pattern or placeholder in it.
PATH = re.compile(rf"`((?:{'|'.join(CODE_FOLDERS)})/[\w./-]+)`")


def find(root: pathlib.Path) -> list[Finding]:
    findings = []
    for folder in CODE_FOLDERS:
        if (root / folder).is_dir() and not (root / folder / "README.md").is_file():
            findings.append(Finding(f"{folder}/README.md", 1, "does not exist: each top-level folder has a map"))
    for path in project_files(root, ".md"):
        name = path.relative_to(root).as_posix()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for target in LINK.findall(line):
                if "://" not in target and not (path.parent / target).exists():
                    findings.append(Finding(name, number, f"links to {target}, which does not exist"))
            for target in PATH.findall(line):
                if "/my_" in target:
                    continue  # an example's name
                if not (root / target).exists() and not (path.parent / target).exists():
                    findings.append(Finding(name, number, f"names {target}, which does not exist"))
    return findings
