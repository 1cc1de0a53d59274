"""Every .cc is named in a CMakeLists.txt (relative to that file's folder): what is not built is not tested."""

import os
import pathlib
import re

from findings import Finding, code_files, project_files


def names(lists: dict[pathlib.Path, str], path: pathlib.Path) -> bool:
    # The lists of the file's folder and of the ones above, then those below (../file.cc).
    for folder, text in lists.items():
        if folder not in path.parents and path.parent not in folder.parents:
            continue
        stem = re.escape(os.path.relpath(path, folder).removesuffix(".cc"))
        # A list may also name the file without its suffix, as in foreach(name ...) ... ${name}.cc.
        if re.search(rf"(?<![\w./-]){stem}(\.cc)?(?![\w./])", text):
            return True
    return False


def find(root: pathlib.Path) -> list[Finding]:
    lists = {p.parent: re.sub(r"#.*", "", p.read_text()) for p in project_files(root, "CMakeLists.txt")}
    message = "is named in no CMakeLists.txt, so it is never built"
    return [
        Finding(path.relative_to(root).as_posix(), 1, message)
        for path in code_files(root, ".cc")
        if not names(lists, path)
    ]
