"""Symbolic sizes of one FX graph: which call arguments tell their values, and what expressions come to.

A graph with symbols is compiled once per binding (a value for each symbol), so the rest of the client only ever sees
numbers.
"""

import sympy
import torch

# Symbols and values of one call, in a fixed order; the key under which a specialised artifact is kept.
Binding = tuple[int, ...]

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class UnboundSymbol(Exception):
    """A value that depends on the data of the step, so that no binding can tell it."""


class Symbols:
    """The symbols of a graph's placeholders. Immutable."""

    def __init__(self, placeholders):
        """`placeholders`: the value (meta "val") of each placeholder, in calling order."""
        sources = {}
        hints = {}
        for position, value in enumerate(placeholders):
            for dim, symint in _symints_of(value):
                expr = symint.node.expr
                if expr.is_Symbol and expr not in sources:
                    sources[expr] = (position, dim)
                    hints[expr] = symint.node.hint
        self._symbols = tuple(sources)
        self._sources = tuple(sources.values())
        self._hints = tuple(hints.values())

    def __bool__(self):
        return bool(self._symbols)

    def hint(self) -> Binding | None:
        """The binding of the traced example; None when a symbol has no hint."""
        if any(not isinstance(hint, int) for hint in self._hints):
            return None
        return self._hints

    def bind(self, args) -> Binding:
        """The binding of one call's arguments."""
        return tuple(int(args[position]) if dim is None else args[position].size(dim)
                     for position, dim in self._sources)

    def evaluator(self, binding: Binding) -> "Evaluator":
        return Evaluator({symbol: sympy.Integer(n) for symbol, n in zip(self._symbols, binding, strict=True)})


class Evaluator:
    """Turns symbolic ints, floats and bools into numbers under one binding. Never adds a guard."""

    def __init__(self, values):
        self._values = values
        self._memo = {}

    def __call__(self, value):
        """A plain number for a number or a symbolic one; UnboundSymbol when the binding can't tell it."""
        if not isinstance(value, _SYMBOLIC):
            return value
        expr = value.node.expr
        if expr not in self._memo:
            self._memo[expr] = self._evaluate(expr, value)
        return self._memo[expr]

    def _evaluate(self, expr, value):
        number = expr.xreplace(self._values)
        if number.free_symbols:
            raise UnboundSymbol(f"{expr} depends on the data of the step")
        if isinstance(value, torch.SymInt):
            return int(number)
        return bool(number) if isinstance(value, torch.SymBool) else float(number)


def is_symbolic(value) -> bool:
    return isinstance(value, _SYMBOLIC)


def _symints_of(value):
    """The symbolic ints that a call argument shows: itself, or sizes of a tensor."""
    if isinstance(value, torch.SymInt):
        yield None, value
    elif isinstance(value, torch.Tensor):
        for dim, size in enumerate(value.shape):
            if isinstance(size, torch.SymInt):
                yield dim, size
