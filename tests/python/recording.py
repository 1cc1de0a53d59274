"""A GraphBuilder that keeps what it is told, and can run it: the exporter's output checked without a server."""

import dataclasses

import torch


@dataclasses.dataclass(eq=False)
class Value:
    kind: str                    # "tensor", "sym_int", "host_scalar"
    name: str
    dtype: torch.dtype | None = None
    sizes: tuple = ()
    strides: tuple = ()
    offset: int = 0
    device: torch.device | None = None
    number: int | None = None


@dataclasses.dataclass
class Node:
    op: str
    args: list
    results: list
    results_are_list: bool
    result_aliases: list
    mutated: list
    uses_rng: bool
    name: str


class RecordingBuilder:

    def __init__(self):
        self.values, self.inputs, self.static, self.nodes, self.outputs = [], [], [], [], []
        self.constants = {}

    def add_tensor(self, dtype, sizes, strides, storage_offset=0, device="cpu", layout="", name=""):
        assert layout == "" and all(type(n) is int for n in (*sizes, *strides, storage_offset)), name
        return self._add(Value("tensor", name, dtype, tuple(sizes), tuple(strides), storage_offset,
                               torch.device(device)))

    def add_sym_int(self, value, name=""):
        assert type(value) is int
        return self._add(Value("sym_int", name, number=value))

    def add_host_scalar(self, name=""):
        return self._add(Value("host_scalar", name))

    def add_input(self, value, static=False):
        self.inputs.append(value)
        self.static.append(static)

    def add_constant(self, value, tensor):
        assert tensor.is_contiguous()
        self.constants[value] = tensor.clone()

    def add_node(self, op, args, results, results_are_list=False, result_aliases=(), mutated=(), uses_rng=False,
                 name="", diagnostics=""):
        assert len(result_aliases) == len(results)
        self.nodes.append(Node(op, list(args), list(results), results_are_list, list(result_aliases), list(mutated),
                               uses_rng, name))

    def add_output(self, output):
        assert output is None or type(output) in (Value, int)
        self.outputs.append(output)

    def _add(self, value):
        self.values.append(value)
        return value

    def ops(self):
        return [node.op for node in self.nodes]

    def run(self, args):
        """Executes the record with ATen and checks each tensor against its declared type."""
        assert len(args) == len(self.inputs), f"{len(args)} arguments for {len(self.inputs)} inputs"
        env = dict(self.constants)
        for value, arg in zip(self.inputs, args):
            if value.kind == "tensor":
                _check(value, arg)
            elif value.kind == "sym_int":
                assert arg == value.number
            env[value] = arg
        for node in self.nodes:
            results = _run_node(node, env)
            for value, result in zip(node.results, results, strict=True):
                if value is not None:
                    _check(value, result)
                    env[value] = result
        return [env[output] if isinstance(output, Value) else output for output in self.outputs]


def _run_node(node, env):
    namespace, name, overload = node.op.split(".")
    op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
    parameters = op._schema.arguments
    assert [name for name, _ in node.args] == [parameter.name for parameter in parameters], node.op
    values = [_value(argument, env) for _, argument in node.args]
    positional = [v for v, p in zip(values, parameters) if not p.kwarg_only]
    keywords = {p.name: v for v, p in zip(values, parameters) if p.kwarg_only}
    result = op(*positional, **keywords)
    if result is None:
        return []
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _value(argument, env):
    if isinstance(argument, list):
        return [_value(element, env) for element in argument]
    return env[argument] if isinstance(argument, Value) else argument


def _check(value, tensor):
    assert isinstance(tensor, torch.Tensor), value.name
    assert tensor.dtype == value.dtype and tuple(tensor.shape) == value.sizes, (value.name, value, tensor.shape)
    relevant = [(s, d) for n, s, d in zip(value.sizes, value.strides, tensor.stride()) if n > 1]
    assert 0 in value.sizes or all(s == d for s, d in relevant), (value.name, value.strides, tensor.stride())
