"""Every .cc is named in a CMakeLists.txt of its folder or of one above: what is not built is not tested."""

import pathlib
import re

from findings import Finding, code_files


def find(root: pathlib.Path) -> list[Finding]:
    findings = []
    for path in code_files(root, ".cc"):
        named = False
        for folder in path.parents:
            lists = folder / "CMakeLists.txt"
            relative = re.escape(path.relative_to(folder).as_posix())
            # A list may also name the file without its suffix, as in foreach(name ...) ... ${name}.cc.
            pattern = rf"(?<![\w./-]){relative}(?![\w.])|(?<![\w./-]){relative[: -len(re.escape('.cc'))]}(?![\w./])"
            if lists.is_file() and re.search(pattern, re.sub(r"#.*", "", lists.read_text())):
                named = True
            if named or folder == root:
                break
        if not named:
            findings.append(Finding(path.relative_to(root).as_posix(), 1, "is named in no CMakeLists.txt, so it is never built"))
    return findings
