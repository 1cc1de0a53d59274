"""FX graph after AOTAutograd -> wire graph, through the calls of `_native.GraphBuilder`.

What the wire wants and FX does not give: arguments complete and in schema order, results instead of getitem nodes,
types with sizes, strides and offset, aliasing, mutation and random numbers as the op's schema declares them. Symbolic
sizes are replaced by the numbers of one binding, so nodes that only compute sizes vanish.
"""

import dataclasses
import operator

import torch
from torch import fx
from torch.utils._python_dispatch import _disable_current_modes

from stepone.symbols import Evaluator, UnboundSymbol, is_symbolic

# Constants up to this size travel inside the graph and can be folded; larger ones become inputs.
INLINE_CONSTANT_BYTES = 64 * 1024

ROLES = ("forward", "backward", "joint", "inference")


class Unexportable(Exception):
    """The graph can't cross the wire and runs eagerly. `reason` is short and fit for counting."""

    def __init__(self, reason: str, node: str, detail: str):
        super().__init__(f"{detail} (node {node})" if node else detail)
        self.reason = reason
        self.node = node


@dataclasses.dataclass(frozen=True)
class Exported:
    """What a call of the compiled graph needs beside its own arguments."""

    extra_inputs: tuple[torch.Tensor, ...]   # constants too large to travel, appended to each call's arguments
    num_ops: int


def export_graph(gm: fx.GraphModule, builder, evaluate: Evaluator, static_inputs=frozenset()) -> Exported:
    """Writes `gm` into `builder` (a `_native.GraphBuilder` or what looks like it).

    `static_inputs`: positions of placeholders that do not move between steps. Raises Unexportable.
    """
    with _disable_current_modes():   # while tracing, a fake mode would take hold of the graph's real constants
        return _Exporter(gm, builder, evaluate, static_inputs).run()


class _Exporter:

    def __init__(self, gm, builder, evaluate, static_inputs):
        self._gm = gm
        self._builder = builder
        self._evaluate = evaluate
        self._static_inputs = static_inputs
        self._values = {}          # fx.Node -> Value, list of Value|None (list results), or a plain number
        self._extra_inputs = []    # (Value, tensor)
        self._num_ops = 0

    def run(self):
        position = 0
        for node in self._gm.graph.nodes:
            if node.op == "placeholder":
                self._placeholder(node, position)
                position += 1
            elif node.op == "get_attr":
                self._constant(node)
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                self._outputs(node)
            else:
                raise Unexportable("call of a module or method", node.name, f"{node.op} {node.target}")
        for value, _ in self._extra_inputs:
            self._builder.add_input(value, static=True)
        return Exported(tuple(tensor for _, tensor in self._extra_inputs), self._num_ops)

    def _placeholder(self, node, position):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            wire = self._tensor(value, node)
            self._values[node] = wire
        elif isinstance(value, torch.SymFloat) and not self._is_bound(value):
            wire = self._builder.add_host_scalar(node.name)
            self._values[node] = wire
        elif isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
            number = self._number(value, node)
            wire = self._builder.add_sym_int(number, node.name)
            self._values[node] = number
        else:
            raise Unexportable("input that is no tensor or number", node.name, f"input of type {type(value).__name__}")
        self._builder.add_input(wire, static=position in self._static_inputs)

    def _constant(self, node):
        tensor = self._gm
        for part in node.target.split("."):
            tensor = getattr(tensor, part)
        if isinstance(tensor, fx.GraphModule):
            self._values[node] = tensor   # only a higher-order op takes it, and that op will say so
            return
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            raise Unexportable("constant that is no tensor", node.name, f"constant of type {type(tensor).__name__}")
        if tensor.device.type == "cpu" and tensor.numel() * tensor.element_size() <= INLINE_CONSTANT_BYTES:
            tensor = tensor.detach().contiguous()
            wire = self._tensor(tensor, node)
            self._builder.add_constant(wire, tensor)
        else:
            wire = self._tensor(tensor, node)
            self._extra_inputs.append((wire, tensor.detach()))
        self._values[node] = wire

    def _call(self, node):
        value = node.meta.get("val")
        if node.target is operator.getitem and isinstance(self._values.get(node.args[0]), list):
            self._values[node] = self._values[node.args[0]][node.args[1]]
            return
        if self._folds(node, value):
            return
        op = node.target
        if isinstance(op, torch._ops.HigherOrderOperator):
            raise Unexportable(f"higher-order op {op.name()}", node.name, f"higher-order op {op.name()}")
        if not isinstance(op, torch._ops.OpOverload):
            name = getattr(op, "__name__", str(op))
            raise Unexportable(f"Python function {name}", node.name, f"{name} is no ATen op")
        arguments, by_alias_set, mutated = self._arguments(node, op)
        results, is_list = self._results(node, value)
        self._builder.add_node(
            str(op), arguments, results, results_are_list=is_list,
            result_aliases=_aliases(op, results, is_list, by_alias_set), mutated=mutated,
            uses_rng=torch.Tag.nondeterministic_seeded in op.tags, name=node.name, diagnostics=_origin(node))
        self._num_ops += 1

    def _folds(self, node, value):
        """Handles nodes that only compute with sizes: their value is a number under this binding."""
        if is_symbolic(value):
            if self._depends_on_host_scalar(node):
                raise Unexportable("arithmetic on a float input", node.name, f"{node.target} on the host")
            self._values[node] = self._number(value, node)
            return True
        if isinstance(value, (int, float, bool)):
            self._values[node] = value
            return True
        if node.target in _SCALAR_CHECKS:
            # Guards on sizes: under this binding they are decided.
            condition = node.args[0]
            number = self._values.get(condition) if isinstance(condition, fx.Node) else condition
            if not isinstance(number, (bool, int)) or not number:
                raise Unexportable("check that fails or is not decided", node.name, f"{node.target} of {condition}")
            return True
        return node.target in _METADATA_ONLY

    def _depends_on_host_scalar(self, node):
        return any(source.op == "placeholder" and isinstance(source.meta.get("val"), torch.SymFloat)
                   and not self._is_bound(source.meta["val"]) for source in node.all_input_nodes)

    def _results(self, node, value):
        """One Value, or None where nobody reads it, per result; and whether they form a list."""
        if value is None:
            return [], False
        if isinstance(value, torch.Tensor):
            wire = self._tensor(value, node)
            self._values[node] = wire
            return [wire], False
        if not isinstance(value, (tuple, list)):
            raise Unexportable("op with an unknown kind of result", node.name, f"result {type(value).__name__}")
        used = {user.args[1] for user in node.users if user.target is operator.getitem}
        others = [user for user in node.users if user.target is not operator.getitem]
        if others:
            used = range(len(value))
        wires = []
        for index, element in enumerate(value):
            if element is not None and not isinstance(element, torch.Tensor):
                raise Unexportable("op with a number among its results", node.name, f"result {index} of {node.target}")
            is_used = element is not None and (index in used or index - len(value) in used)
            wires.append(self._tensor(element, node, f".{index}") if is_used else None)
        self._values[node] = wires
        returns = node.target._schema.returns
        return wires, len(returns) == 1 and isinstance(returns[0].type, torch.ListType)

    def _arguments(self, node, op):
        """(complete arguments in schema order, alias set -> Value or list of Values, Values written in place)."""
        schema = op._schema
        arguments, by_alias_set, mutated = [], {}, []
        position = 0
        for parameter in schema.arguments:
            if not parameter.kwarg_only and position < len(node.args):
                raw = node.args[position]
                position += 1
            elif parameter.name in node.kwargs:
                raw = node.kwargs[parameter.name]
            elif parameter.has_default_value():
                raw = parameter.default_value
            else:
                raise Unexportable("op without a required argument", node.name, f"{op} has no {parameter.name!r}")
            argument = self._argument(raw, parameter, node)
            arguments.append((parameter.name, argument))
            if parameter.alias_info is not None:
                for name in parameter.alias_info.before_set | parameter.alias_info.after_set:
                    by_alias_set[name] = argument
                if parameter.alias_info.is_write:
                    mutated.extend(self._tensors_among(argument))
        return arguments, by_alias_set, mutated

    def _argument(self, raw, parameter, node):
        kind = str(parameter.real_type)
        if raw is None:
            return None
        if isinstance(raw, fx.Node):
            raw = self._of(raw, node)
        elif isinstance(raw, (list, tuple)):
            return [self._element(element, node) for element in raw]
        elif is_symbolic(raw):
            raw = self._number(raw, node)
        if "List" in kind and isinstance(raw, int) and not isinstance(raw, bool):
            return [raw] * (parameter.N or 1)   # "int[2] stride=1": one number stands for all
        if isinstance(raw, int) and not isinstance(raw, bool):
            if "ScalarType" in kind and raw in _DTYPE_BY_CODE:
                return _DTYPE_BY_CODE[raw]   # schemas give default dtypes as c10::ScalarType
            if "ScalarType" in kind or "MemoryFormat" in kind or "Layout" in kind:
                raise Unexportable("enumeration given as a number", node.name, f"{parameter.name}={raw}")
            if kind in ("float", "Optional[float]"):
                return float(raw)
        if isinstance(raw, torch.Generator):
            raise Unexportable("explicit random generator", node.name, f"{node.target} with a generator")
        if isinstance(raw, (torch._C.ScriptObject, fx.GraphModule)):
            raise Unexportable("argument without a wire form", node.name, f"{parameter.name} of {node.target}")
        return raw

    def _element(self, raw, node):
        if isinstance(raw, fx.Node):
            return self._of(raw, node)
        if isinstance(raw, (list, tuple)):
            raise Unexportable("argument without a wire form", node.name, f"nested list for {node.target}")
        return self._number(raw, node) if is_symbolic(raw) else raw

    def _of(self, source, node):
        if source not in self._values:
            raise Unexportable("value that was not computed", node.name, f"{source} is not available")
        return self._values[source]

    def _outputs(self, node):
        for output in node.args[0]:
            if isinstance(output, fx.Node):
                output = self._of(output, node)
            elif is_symbolic(output):
                output = self._number(output, node)
            if isinstance(output, list) or isinstance(output, float):
                raise Unexportable("output without a wire form", node.name, f"output of type {type(output).__name__}")
            self._builder.add_output(int(output) if isinstance(output, bool) else output)

    def _tensor(self, tensor, node, suffix=""):
        if tensor.dtype in _UNSUPPORTED_DTYPES or tensor.is_conj() or tensor.is_neg():
            raise Unexportable("tensor without a wire form", node.name, f"{tensor.dtype}, conjugate or negative view")
        strided = tensor.layout == torch.strided
        sizes = [self._number(size, node) for size in tensor.shape]
        strides = [self._number(stride, node) for stride in tensor.stride()] if strided else []
        offset = self._number(tensor.storage_offset(), node) if strided else 0
        layout = "" if strided else str(tensor.layout).removeprefix("torch.")
        return self._builder.add_tensor(
            tensor.dtype, sizes, strides, offset, tensor.device, layout, node.name + suffix)

    def _number(self, value, node):
        try:
            return self._evaluate(value)
        except UnboundSymbol as error:
            raise Unexportable("size that depends on data", node.name, str(error)) from None

    def _is_bound(self, value):
        try:
            self._evaluate(value)
        except UnboundSymbol:
            return False
        return True

    @staticmethod
    def _tensors_among(argument):
        return [a for a in (argument if isinstance(argument, list) else [argument]) if a is not None]


_UNSUPPORTED_DTYPES = frozenset(
    getattr(torch, name) for name in ("quint8", "qint8", "qint32", "quint4x2", "quint2x4") if hasattr(torch, name))

_DTYPE_BY_CODE = {3: torch.int32, 4: torch.int64, 6: torch.float32, 7: torch.float64, 11: torch.bool}

_SCALAR_CHECKS = frozenset((torch.ops.aten._assert_scalar.default,))

# They state facts that tracing has established, and return nothing.
_METADATA_ONLY = frozenset((
    torch.ops.aten._assert_tensor_metadata.default,
    torch.ops.aten.sym_constrain_range.default,
    torch.ops.aten.sym_constrain_range_for_size.default,
))


def _aliases(op, results, is_list, by_alias_set):
    """For each result the argument that the schema lets it share storage with."""
    returns = op._schema.returns
    if not any(r.alias_info is not None for r in returns):
        return [None] * len(results)
    if is_list:
        # "Tensor(a -> *) self ... -> Tensor(a)[]": the elements' set is not shown to Python, the wildcard is.
        source = by_alias_set.get("*")
        return [None if isinstance(source, (list, int, float)) else source] * len(results)
    aliases = []
    for result, declared in zip(results, returns, strict=False):
        source = None
        if declared.alias_info is not None:
            source = next((by_alias_set[name] for name in declared.alias_info.before_set if name in by_alias_set), None)
        aliases.append(None if isinstance(source, (list, int, float)) else source)
    return aliases


def _origin(node):
    """Where in the user's model a node came from: the innermost module's path."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path, _ = next(reversed(stack.values()))
    return str(path)
