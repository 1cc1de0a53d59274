"""Renders a Helm chart that uses only a small part of the template language, so that tests need no helm.

Known: values by path, variables, parentheses, the functions of _FUNCTIONS, pipes, `if`, `range $key, $value :=`, `end`,
and trimming. Anything else raises, as does a path that values.yaml does not have: helm would print nothing for it.
"""

import hashlib
import json
import pathlib
import re

import yaml

_TOKEN = re.compile(r"(\s*\{\{-|\{\{)\s*(.*?)\s*(-\}\}\s*|\}\})", re.DOTALL)
_WORD = re.compile(r'\(|\)|\||"[^"]*"|[^\s()|"]+')
_FUNCTIONS = {
    "toJson": lambda value: json.dumps(value, sort_keys=True, separators=(",", ":")),
    "toString": str,
    "sha256sum": lambda text: hashlib.sha256(text.encode()).hexdigest(),
    "add": lambda *numbers: sum(numbers),
}


def render(chart: pathlib.Path, release: str, **values) -> dict[str, list]:
    """The YAML documents of each template by file name. `values` replace those of values.yaml, at the top level."""
    defaults = yaml.safe_load((chart / "values.yaml").read_text())
    unknown = values.keys() - defaults.keys()
    if unknown:
        raise KeyError(f"not in values.yaml: {sorted(unknown)}")
    scope = {"Values": defaults | values, "Release": {"Name": release}}
    return {
        path.name: list(yaml.safe_load_all(render_text(path.read_text(), scope)))
        for path in sorted((chart / "templates").glob("*.yaml"))
    }


def render_text(text: str, scope: dict) -> str:
    parts, end = [], 0
    for match in _TOKEN.finditer(text):
        parts += [("text", text[end : match.start()]), ("action", match.group(2))]
        end = match.end()
    parts.append(("text", text[end:]))
    rendered, rest = _block(parts, scope, {})
    if rest:
        raise SyntaxError("an end without a beginning")
    return rendered


def _block(parts, scope, variables):
    """Renders up to the `end` of the block, or all; also what is left after it."""
    rendered = []
    while parts:
        (kind, content), parts = parts[0], parts[1:]
        if kind == "text":
            rendered.append(content)
        elif content == "end":
            return "".join(rendered), [("closed", ""), *parts]
        elif content.startswith("if "):
            inside, parts = _inner(parts, scope, variables if (taken := _value(content[3:], scope, variables)) else None)
            rendered.append(inside if taken else "")
        elif loop := re.fullmatch(r"range (\$\w+), (\$\w+) := (.+)", content):
            items, after = sorted(_value(loop.group(3), scope, variables).items()), None
            for key, item in items:
                inside, after = _inner(parts, scope, variables | {loop.group(1): key, loop.group(2): item})
                rendered.append(inside)
            parts = after if items else _inner(parts, scope, None)[1]
        else:
            rendered.append(str(_value(content, scope, variables)))
    return "".join(rendered), []


def _inner(parts, scope, variables):
    """The block that begins here. `variables` None: it is skipped, so what it holds need not have a value."""
    if variables is None:
        depth = 0
        for position, (kind, content) in enumerate(parts):
            if kind == "action" and content == "end" and depth == 0:
                return "", parts[position + 1 :]
            depth += kind == "action" and (content.startswith(("if ", "range ")) - (content == "end"))
        raise SyntaxError("a block without an end")
    rendered, rest = _block(parts, scope, variables)
    if not rest:
        raise SyntaxError("a block without an end")
    return rendered, rest[1:]


def _value(expression, scope, variables):
    words = _WORD.findall(expression)
    value = _pipeline(words, scope, variables)
    if words:
        raise SyntaxError(f"not understood: {expression}")
    return value


def _pipeline(words, scope, variables):
    value = _call(words, scope, variables)
    while words and words[0] == "|":
        words.pop(0)
        value = _call(words, scope, variables, [value])
    return value


def _call(words, scope, variables, piped=()):
    name = words[0] if words[0] in _FUNCTIONS else None
    if name is None:
        return _operand(words, scope, variables)
    words.pop(0)
    arguments = []
    while words and words[0] not in "|)":
        arguments.append(_operand(words, scope, variables))
    return _FUNCTIONS[name](*arguments, *piped)


def _operand(words, scope, variables):
    word = words.pop(0)
    if word == "(":
        value = _pipeline(words, scope, variables)
        words.pop(0)
        return value
    if word.startswith("$"):
        return variables[word]
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    if not word.startswith("."):
        raise SyntaxError(f"not understood: {word}")
    value = scope
    for key in word[1:].split("."):
        value = value[key]
    return value
