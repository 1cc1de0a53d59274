"""The environment is read in main files only: everything else gets values, so keys and tests see what there is."""

import pathlib
import re

from findings import Finding, code_files

# path or folder -> why it may read the environment
ALLOWED = {
    "server/main.cc": "flags and environment become ServerConfig here",
    "server/worker/worker_main.cc": "the environment that the front process hands to a worker",
    "client/client_config.cc": "the environment becomes ClientConfig here",
    "client/local_server.cc": "hands the environment on to the server that it starts, and reads nothing of it",
    "client/python/stepone/config.py": "the same for the Python package",
    "client/python/stepone/demo": "a program of its own, which sets up the environments of its jobs",
    "deploy": "runs before there is a program",
    "tests": "sets up environments for programs under test",
}
PATTERNS = {
    (".h", ".cc", ".c"): re.compile(r"\b(secure_)?getenv\s*\(|\bsetenv\s*\(|\bputenv\s*\(|\benviron\b"),
    (".py",): re.compile(r"\bos\.(environb?|getenvb?|putenv)\b|\bfrom os import .*\b(environ|getenv)\b"),
}


def find(root: pathlib.Path) -> list[Finding]:
    findings = []
    for suffixes, pattern in PATTERNS.items():
        for path in code_files(root, *suffixes):
            name = path.relative_to(root).as_posix()
            if any(name == entry or name.startswith(f"{entry}/") for entry in ALLOWED):
                continue
            for number, line in enumerate(path.read_text().splitlines(), 1):
                code = re.sub(r"//.*|(^|\s)#\s.*", "", line)
                if pattern.search(code):
                    findings.append(Finding(name, number, "reads the environment; only the files in check_getenv.py may"))
    return findings
