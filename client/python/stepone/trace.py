"""A captured graph (before autograd) as canonical text: one fact a line, nothing in it that differs between two runs of
the same program. Equal text means that AOTAutograd would make the same of it, so the text is what a bundle is asked
for by; the service hashes and compares it, and a miss is explained by the lines that differ.
"""

import builtins
import functools
import hashlib
import math
import types

import torch
from torch import fx
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

# Raised when the same text would lead to other graphs: the partition's policy, passes before autograd, ...
_FORMAT = 1


class Untraceable(Exception):
    """The graph has no bundle and takes the way through AOTAutograd. `reason` is short and fit for counting."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def trace_text(gm: fx.GraphModule, example_inputs) -> bytes:
    """The text of `gm` as called with `example_inputs`, under the settings of the moment. Raises Untraceable."""
    lines = [f"format {_FORMAT}"]
    lines += _settings()
    lines += _inputs(gm, example_inputs)
    _Writer(gm, lines).write()
    return "\n".join(lines).encode()


def _settings():
    """What decides how a graph is traced and is not in it."""
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise Untraceable("hooks on saved tensors")
    if torch.overrides._len_torch_function_stack() or _has_foreign_dispatch_mode():
        raise Untraceable("a torch function or dispatch mode is active")
    for name, value in _SETTINGS.items():
        yield f"{name} {value()}"
    for device in ("cpu", "cuda"):
        yield f"autocast {device} {torch.is_autocast_enabled(device)} {torch.get_autocast_dtype(device)}"


def _has_foreign_dispatch_mode():
    return any(not isinstance(mode, torch._subclasses.FakeTensorMode) for mode in _get_current_dispatch_mode_stack())


def _functorch_config():
    # A copy as plain data: the module's own digest leaves out what it takes for harmless.
    config = torch._functorch.config.get_config_copy()
    return hashlib.sha256(repr(sorted((k, repr(v)) for k, v in config.items())).encode()).hexdigest()


_SETTINGS = {
    "torch": lambda: torch.__version__,
    "grad mode": torch.is_grad_enabled,
    "inference mode": torch.is_inference_mode_enabled,
    "autocast cache": torch.is_autocast_cache_enabled,
    "deterministic": torch.are_deterministic_algorithms_enabled,
    "deterministic warns only": torch.is_deterministic_algorithms_warn_only_enabled,
    "fill uninitialized memory": lambda: torch.utils.deterministic.fill_uninitialized_memory,
    "default dtype": torch.get_default_dtype,
    "matmul precision": torch.get_float32_matmul_precision,
    "mkldnn": lambda: torch.backends.mkldnn.enabled,
    "attention": lambda: (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled(),
                          torch.backends.cuda.math_sdp_enabled(), torch.backends.cuda.cudnn_sdp_enabled()),
    "functorch config": _functorch_config,
}


def _inputs(gm, example_inputs):
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    if len(placeholders) != len(example_inputs) or next(gm.parameters(), None) is not None or \
            next(gm.buffers(), None) is not None:
        raise Untraceable("parameters that are no inputs")
    storages = {}
    for position, (node, tensor) in enumerate(zip(placeholders, example_inputs)):
        if not isinstance(tensor, torch.Tensor):
            raise Untraceable("an input that is no tensor")
        if type(tensor) not in _PLAIN_TENSORS or torch.utils._python_dispatch.is_traceable_wrapper_subclass(tensor):
            raise Untraceable("a tensor subclass among the inputs")
        kind = (node.meta.get("tensor_dict") or {}).get("_dynamo_static_input_type", "moves")
        # Inputs that share memory are told from such that do not; which of them is the base makes no difference.
        storage = storages.setdefault(tensor.untyped_storage()._cdata, position) if _has_storage(tensor) else position
        yield f"input {position}: {_tensor(tensor)} {kind} storage {storage}"


_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, torch._subclasses.FakeTensor)


def _has_storage(tensor):
    return tensor.layout == torch.strided


def _tensor(tensor):
    """Type and autograd's state of a tensor; its values are not in it."""
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor) or tensor.is_quantized:
        raise Untraceable("a tensor inside a function transform")
    if any(not isinstance(size, int) for size in tensor.shape):
        raise Untraceable("symbolic sizes")
    strides = tuple(tensor.stride()) if _has_storage(tensor) else tensor.layout
    offset = tensor.storage_offset() if _has_storage(tensor) else 0
    flags = "".join(letter for letter, is_set in (
        ("g", tensor.requires_grad), ("l", tensor.is_leaf), ("i", tensor.is_inference()), ("c", tensor.is_conj()),
        ("n", tensor.is_neg()), ("v", tensor._is_view()), ("r", tensor.retains_grad)) if is_set)
    return f"{tensor.dtype} {tuple(tensor.shape)} {strides} {offset} {tensor.device} {flags or '-'}"


class _Writer:
    """Writes the nodes of one graph, and of the graphs inside it, as lines."""

    def __init__(self, gm, lines, indent=""):
        self._gm = gm
        self._lines = lines
        self._indent = indent
        self._numbers = {}

    def write(self):
        if self._gm.meta.get("_checkpoint_context_fn") is not None:
            raise Untraceable("checkpointing with a policy of its own")
        for node in self._gm.graph.nodes:
            if node.meta.get("custom"):
                raise Untraceable("annotated nodes")
            self._numbers[node] = number = len(self._numbers)
            self._lines.append(f"{self._indent}{number}: {self._node(node)}")

    def _node(self, node):
        if node.op == "placeholder":
            return "placeholder"
        if node.op == "get_attr":
            return f"constant {self._constant(node.target)}"
        if node.op == "output":
            return f"output {self._value(node.args[0])}"
        if node.op == "call_method":
            target = f".{node.target}"
        elif node.op == "call_function":
            target = _function_name(node.target)
        else:
            raise Untraceable("a call of a module")
        arguments = [self._value(argument) for argument in node.args]
        arguments += [f"{name}={self._value(node.kwargs[name])}" for name in sorted(node.kwargs)]
        return f"{target}({', '.join(arguments)})"

    def _constant(self, target):
        value = self._gm
        for part in target.split("."):
            value = getattr(value, part)
        if isinstance(value, fx.GraphModule):
            self._lines.append(f"{self._indent}graph:")
            _Writer(value, self._lines, self._indent + "  ").write()
            return "graph"
        if not isinstance(value, torch.Tensor) or type(value) not in _PLAIN_TENSORS or not _has_storage(value) \
                or value.device.type != "cpu":
            raise Untraceable(f"a constant of type {type(value).__name__}")
        data = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return f"{_tensor(value)} {hashlib.sha256(data.numpy().tobytes()).hexdigest()}"

    def _value(self, value):
        if isinstance(value, fx.Node):
            return f"%{self._numbers[value]}"
        if isinstance(value, (tuple, list)):
            elements = ", ".join(map(self._value, value))
            if type(value) is tuple:
                return f"({elements})"
            if isinstance(value, list):
                return f"[{elements}]"
            return f"{type(value).__name__}({elements})"   # torch.Size, a named tuple
        if isinstance(value, dict):
            return f"{{{', '.join(f'{self._value(k)}: {self._value(v)}' for k, v in value.items())}}}"
        if isinstance(value, slice):
            return f"slice({self._value(value.start)}, {self._value(value.stop)}, {self._value(value.step)})"
        if isinstance(value, float):
            return value.hex() if math.isfinite(value) else repr(value)
        if value is None or value is Ellipsis or type(value) in _PLAIN_VALUES:
            return repr(value)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
            return _function_name(value)
        raise Untraceable(f"an argument of type {type(value).__name__}")


_PLAIN_VALUES = frozenset((bool, int, str, complex, torch.dtype, torch.device, torch.layout, torch.memory_format))

# Functions of these mean the same wherever this version of torch is installed.
_KNOWN_MODULES = frozenset(("torch", "_operator", "operator", "math", "builtins"))
_KNOWN_OPS = frozenset(("aten", "prims", "prim"))
_KNOWN_HIGHER_ORDER_OPS = frozenset(("tag_activation_checkpoint",))


@functools.lru_cache(maxsize=4096)
def _function_name(function):
    if isinstance(function, torch._ops.HigherOrderOperator):
        if function.name() not in _KNOWN_HIGHER_ORDER_OPS:
            raise Untraceable(f"higher-order op {function.name()}")
        return f"op {function.name()}"
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        if str(function).partition(".")[0] not in _KNOWN_OPS:
            raise Untraceable(f"custom op {function}")
        return f"op {function}"
    name = fx.node._get_qualified_name(function)
    module = "builtins" if getattr(builtins, name, None) is function else name.partition(".")[0]
    if module not in _KNOWN_MODULES or "<" in name:
        raise Untraceable(f"function {name}")
    return name
