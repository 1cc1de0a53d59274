"""Functions fit on a screen: up to 60 lines, found by the indentation that clang-format guarantees, or by Python's parser."""

import ast
import pathlib
import re

from findings import Finding, code_files

BUDGET = 60
# "path:function" -> why it may be longer
EXCEPTIONS: dict[str, str] = {
    "tests/golden/make_numerics.py:arithmetic": "a table of cases, one a line",
}
CONTAINER = re.compile(r"(template\s*<.*>\s*)?(namespace|class|struct|enum|union|extern)\b")


def cpp_functions(text: str) -> list[tuple[int, int, str]]:
    """(first line, number of lines, first line's text) of each function at namespace level or directly in a class."""
    found = []
    starts: dict[int, int] = {}
    in_class = False
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("//", "#")):
            continue
        indent = len(line) - len(line.lstrip())
        if indent not in (0, 2) or indent == 2 and not in_class:
            continue
        if line.strip() in ("}", "};"):
            start = starts.pop(indent, None)
            if indent == 0:
                in_class = False
            if start and line.strip() == "}" and not CONTAINER.match(lines[start - 1].strip()):
                found.append((start, number - start + 1, lines[start - 1].strip()))
        elif not re.match(r"(public|private|protected):|[})\]]|:", line.strip()):
            starts[indent] = number
            if indent == 0:
                in_class = bool(re.match(r"(template\s*<.*>\s*)?(class|struct)\b.*\{$", line))
    return found


def python_functions(text: str) -> list[tuple[int, int, str]]:
    return [
        (node.lineno, node.end_lineno - node.lineno + 1, node.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]


def name_of(first_line: str) -> str:
    match = re.search(r"([\w:~]+)\s*\(", first_line)
    return match.group(1) if match else first_line


def find(root: pathlib.Path) -> list[Finding]:
    findings = []
    for path in code_files(root, ".h", ".cc", ".py"):
        functions = python_functions if path.suffix == ".py" else cpp_functions
        name = path.relative_to(root).as_posix()
        for line, length, first_line in functions(path.read_text()):
            function = name_of(first_line)
            if length > BUDGET and f"{name}:{function}" not in EXCEPTIONS:
                findings.append(Finding(name, line, f"{function} has {length} lines; the budget of a function is {BUDGET}"))
    return findings
