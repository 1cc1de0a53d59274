"""Writes numerics/*.tg: calls of ATen ops on small tensors with the results that eager torch gives.

Each graph holds the operands and the expected results as constants, and has outputs in pairs: what the op gives, what is
expected. numerics_test.cc decomposes and evaluates them, so that the test itself needs no torch. Run it again after adding
a case: `python tests/golden/make_numerics.py`.
"""

import math
import pathlib

import torch
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten
FOLDER = pathlib.Path(__file__).parent / "numerics"
DTYPES = {
    torch.float64: "f64", torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.int64: "i64",
    torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.uint8: "u8", torch.bool: "b1",
}
BF16, F16, F64 = torch.bfloat16, torch.float16, torch.float64
INF, NAN = math.inf, math.nan


def type_text(tensor):
    sizes = ",".join(map(str, tensor.shape))
    expected, step = [], 1
    for size in reversed(tensor.shape):
        expected.insert(0, step)
        step *= max(size, 1)
    strides = "" if list(tensor.stride()) == expected else "{" + ",".join(map(str, tensor.stride())) + "}"
    return f"{DTYPES[tensor.dtype]}[{sizes}]{strides}"


def data_text(tensor):
    flat = tensor.detach().contiguous().reshape(-1)
    return "0x" + bytes(flat.view(torch.uint8).tolist()).hex()


def number_text(value):
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(float(value))


class Writer:
    def __init__(self, name):
        self.lines, self.next, self.values, self.name = [f"# {name}", "graph forward"], 0, {}, name

    def constant(self, tensor):
        tensor = tensor.detach().contiguous()
        number, self.next = self.next, self.next + 1
        self.lines.append(f"%{number} = constant {data_text(tensor)} : {type_text(tensor)}")
        return number

    def argument(self, value):
        if isinstance(value, torch.fx.Node):
            return f"%{self.values[value]}"
        if value is None:
            return "none"
        if isinstance(value, (bool, int, float)):
            return number_text(value)
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, torch.dtype):
            return DTYPES[value]
        if isinstance(value, torch.device):
            return f'device("{value.type}")'
        if isinstance(value, torch.layout):
            return 'layout("strided")'
        if isinstance(value, torch.memory_format):
            return f'memory_format("{str(value).removeprefix("torch.")}")'
        if isinstance(value, (list, tuple)):
            return "[" + ", ".join(map(self.argument, value)) + "]" if len(value) else "ints[]"
        raise TypeError(f"{self.name}: argument {value!r}")

    def call(self, node):
        schema = node.target._schema
        texts = []
        for i, parameter in enumerate(schema.arguments):
            if i < len(node.args) and not parameter.kwarg_only:
                value = node.args[i]
            elif parameter.name in node.kwargs:
                value = node.kwargs[parameter.name]
            else:
                value = parameter.default_value
            if isinstance(parameter.type, torch.ListType) and isinstance(value, int):
                value = [value]
            if parameter.name == "dtype" and isinstance(value, int):
                value = None
            texts.append(f"{parameter.name}={self.argument(value)}")
        results = node.meta["val"]
        is_list = isinstance(results, list)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        names, types = [], []
        for result in results:
            if result is None:
                names.append("_")
                types.append("_")
                continue
            names.append(f"%{self.next}")
            types.append(type_text(result))
            self.next += 1
        self.values[node] = int(names[0][1:]) if not isinstance(node.meta["val"], (list, tuple)) else names
        marks = " {list}" if is_list else ""
        op = str(node.target)
        self.lines.append(f"{', '.join(names)} = {op}({', '.join(texts)}){marks} : {', '.join(types)}")


def as_list(results):
    return list(results) if isinstance(results, (list, tuple)) else [results]


def in_double(function, args, like):
    """What `function` gives in float64, rounded once to the dtypes of `like`."""
    wide = [arg.double() if arg.is_floating_point() else arg for arg in args]
    return [None if b is None else a.to(b.dtype) for a, b in zip(as_list(function(*wide)), like, strict=True)]


def write_case(name, function, *args, exact=False):
    graph = make_fx(lambda *a: function(*a))(*args).graph
    expected = as_list(function(*args))
    if exact:
        expected = in_double(function, args, expected)
    writer, tensors = Writer(name), iter(args)
    for node in graph.nodes:
        if node.op == "placeholder":
            writer.values[node] = writer.constant(next(tensors))
        elif node.op == "get_attr":
            raise ValueError(f"{name}: a captured tensor")
        elif node.op == "call_function" and "getitem" in str(node.target):
            name_of = writer.values[node.args[0]][node.args[1]]
            writer.values[node] = None if name_of == "_" else int(name_of[1:])
        elif node.op == "call_function":
            writer.call(node)
        elif node.op == "output":
            outputs = node.args[0]
            outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    for output, tensor in zip(outputs, expected, strict=True):
        if tensor is None:
            continue
        number = writer.constant(tensor)
        writer.lines += [f"output %{writer.values[output]}", f"output %{number}"]
    return "\n".join(writer.lines) + "\n"


class Family:
    def __init__(self, name):
        self.name, self.cases = name, []

    def add(self, name, function, *args, exact=False):
        """`exact`: expect the right results instead of torch's. Its kernels add up some sums of 16-bit floats in 16 bits."""
        self.cases.append(write_case(name, function, *args, exact=exact))

    def save(self):
        FOLDER.mkdir(exist_ok=True)
        text = "# Written by make_numerics.py: calls with the results that eager torch gives.\n"
        (FOLDER / f"{self.name}.tg").write_text(text + "// -----\n".join(self.cases))
        print(f"{self.name}: {len(self.cases)} cases")


def rand(*sizes, dtype=torch.float32, scale=1.0):
    return (torch.randn(sizes) * scale).to(dtype)


def arithmetic():
    f = Family("arithmetic")
    x, y, h, k = rand(3, 4), rand(3, 4), rand(3, 4, dtype=BF16), rand(3, 4, dtype=BF16)
    i = torch.tensor([[5, -7, 0], [3, 2, -9]])
    # torch's kernels round the last few elements of 16-bit floats elsewhere than whole vectors: 32 are whole.
    h32, k32 = rand(32, dtype=BF16), rand(32, dtype=BF16)
    row, scalar = rand(4), torch.tensor(0.1, dtype=F64)
    for name in ("add", "sub", "mul"):
        op = getattr(aten, name).Tensor
        f.add(f"{name} f32", op, x, y)
        f.add(f"{name} broadcast", op, x, row)
        f.add(f"{name} bf16", op, h, k)
        f.add(f"{name} bf16 number", lambda a, op=op: op(a, 3.3), h)
        f.add(f"{name} bf16 with 0-d f64", op, h, scalar)
        f.add(f"{name} 0-d first", op, scalar, h)
        f.add(f"{name} bf16 f32", op, h, y)
        f.add(f"{name} int", op, i, i)
        f.add(f"{name} int number", lambda a, op=op: op(a, 300), i.to(torch.int8))
        f.add(f"{name} int float", lambda a, op=op: op(a, 1.5), i)
        f.add(f"{name} u8 f32", op, i.to(torch.uint8), rand(2, 3))
        f.add(f"{name} 0-d", op, scalar, scalar)
    f.add("add alpha", lambda a, b: aten.add.Tensor(a, b, alpha=2.5), x, y)
    f.add("add alpha bf16", lambda a, b: aten.add.Tensor(a, b, alpha=0.1), h32, k32)
    f.add("sub alpha int", lambda a, b: aten.sub.Tensor(a, b, alpha=3), i, i)
    f.add("rsub", lambda a: aten.rsub.Scalar(a, 1.7, 2), x)
    f.add("rsub bf16", lambda a: aten.rsub.Scalar(a, 1.7), h)
    f.add("add bool", aten.add.Tensor, i > 0, i > 2)
    f.add("mul bool", aten.mul.Tensor, i > 0, i > 2)
    f.add("mul bool f32", aten.mul.Tensor, i > 0, rand(2, 3))
    f.add("div", aten.div.Tensor, x, y)
    f.add("div int", aten.div.Tensor, i, torch.tensor([[2, 3, 4], [4, 5, 7]]))
    f.add("div int number", lambda a: aten.div.Tensor(a, 4), i.to(torch.uint8))
    f.add("div bf16", lambda a: aten.div.Tensor(a, 3.3), h)
    f.add("div 0-d first bf16", aten.div.Tensor, scalar, h)
    a = torch.tensor([-7, -1, 0, 7, 8, -9, 2**31 - 1, -(2**31) + 1], dtype=torch.int32)
    b = torch.tensor([3, -3, 5, -3, 2, 4, -1, -1], dtype=torch.int32)
    u, v = torch.tensor([0.9, 4.5, -0.9, 7.0, -7.0, 1.0, 1.0, -1.0]), torch.tensor([0.1, 0.9, 0.1, -2.0, 2.5, 0.1, 0.0, INF])
    for p, q, name in ((a, b, "i32"), (u, v, "f32"), (u.bfloat16(), v.bfloat16(), "bf16")):
        f.add(f"floor_divide {name}", aten.floor_divide.default, p, q)
        f.add(f"remainder {name}", aten.remainder.Tensor, p, q)
        f.add(f"fmod {name}", aten.fmod.Tensor, p, q)
        f.add(f"div floor {name}", lambda p, q: aten.div.Tensor_mode(p, q, rounding_mode="floor"), p, q)
        f.add(f"div trunc {name}", lambda p, q: aten.div.Tensor_mode(p, q, rounding_mode="trunc"), p, q)
    f.add("remainder number", lambda a: aten.remainder.Scalar(a, -4), a)
    f.add("remainder f32 number", lambda a: aten.remainder.Scalar(a, 0.3), u)
    s = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, -2.0])
    t = torch.tensor([1.0, NAN, 2.0, -0.0, 0.0, NAN, -3.0])
    for name in ("maximum", "minimum", "fmax", "fmin"):
        f.add(name, getattr(aten, name).default, s, t)
        f.add(f"{name} bf16", getattr(aten, name).default, h, k)
        f.add(f"{name} int", getattr(aten, name).default, i, -i)
    positive = x.abs() + 0.1
    for e in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 4, 2.5, -1.5):
        f.add(f"pow {e}", lambda a, e=e: aten.pow.Tensor_Scalar(a, e), positive)
        f.add(f"pow {e} bf16", lambda a, e=e: aten.pow.Tensor_Scalar(a, e), h32.abs() + 0.1)
    f.add("pow int 5", lambda a: aten.pow.Tensor_Scalar(a, 5), i)
    f.add("pow int 2.0", lambda a: aten.pow.Tensor_Scalar(a, 2.0), i)
    f.add("pow tensors", aten.pow.Tensor_Tensor, positive, y)
    f.add("pow of number", lambda a: aten.pow.Scalar(2.0, a), x)
    f.add("bitwise", lambda a: (aten.bitwise_and.Tensor(a, a + 1), aten.bitwise_or.Tensor(a, a * 2), aten.bitwise_xor.Tensor(a, a + 3), aten.bitwise_not.default(a)), i)
    f.add("addcmul", lambda a, b, c: aten.addcmul.default(a, b, c, value=0.3), x, y, row)
    f.add("addcmul bf16", lambda a, b: aten.addcmul.default(a, b, b, value=0.3), h, k)
    f.add("addcdiv", lambda a, b, c: aten.addcdiv.default(a, b, c, value=0.3), x, y, positive)
    f.add("lerp", lambda a, b: (aten.lerp.Scalar(a, b, 0.3), aten.lerp.Scalar(a, b, 0.7)), x, y)
    f.add("lerp tensor", aten.lerp.Tensor, x, y, torch.rand(3, 4))
    f.save()


def unary():
    f = Family("unary")
    x = torch.cat([rand(23, scale=2), torch.tensor([0.0, -0.0, INF, -INF, NAN, 0.5, 1.5, 2.5, -2.5])])
    i = torch.tensor([5, -7, 0, 3])
    for name in ("exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "sigmoid", "erf",
                 "neg", "abs", "sign", "floor", "ceil", "round", "trunc", "relu", "isnan", "isinf", "logical_not"):
        op = getattr(aten, name).default
        safe = x.nan_to_num(0.3, 1, 1) if name in ("sin", "cos") else x
        f.add(name, op, safe)
        f.add(f"{name} bf16", op, safe.bfloat16())
        f.add(f"{name} f64", op, safe.double())
        if name not in ("relu",):
            f.add(f"{name} int", op, i)
    f.add("neg u8", aten.neg.default, torch.tensor([3, 250], dtype=torch.uint8))
    for dtype in (F64, BF16, F16, torch.int64, torch.int32, torch.uint8, torch.bool):
        f.add(f"to {dtype}", lambda a, d=dtype: aten._to_copy.default(a, dtype=d), torch.tensor([0.1, 1.5, 2.5, 100.7, 0.0]))
        f.add(f"int to {dtype}", lambda a, d=dtype: aten._to_copy.default(a, dtype=d), torch.tensor([0, 300, -1, 2**40 + 1]))
    f.add("copy", lambda a: aten._to_copy.default(a), x)
    f.save()


def comparisons():
    f = Family("comparisons")
    x, y, h = rand(3, 4), rand(3, 4), rand(3, 4, dtype=BF16)
    i = torch.tensor([[5, -7, 0], [3, 2, -9]])
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        op, number = getattr(aten, name).Tensor, getattr(aten, name).Scalar
        f.add(name, op, x, y)
        f.add(f"{name} bf16 f32", op, h, y)
        f.add(f"{name} number", lambda a, op=number: op(a, 2), i)
        f.add(f"{name} int8 wraps", lambda a, op=number: op(a, 300), torch.tensor([100, 44], dtype=torch.int8))
        f.add(f"{name} int float", lambda a, op=number: op(a, 2.5), i)
        f.add(f"{name} bf16 number", lambda a, op=number: op(a, 0.1), torch.tensor([0.1, 0.3]).bfloat16())
        f.add(f"{name} 0-d", op, i, torch.tensor(2.5))
        f.add(f"{name} nan", op, torch.tensor([NAN, 1.0]), torch.tensor([NAN, NAN]))
    for name in ("logical_and", "logical_or", "logical_xor"):
        f.add(name, getattr(aten, name).default, x.round(), i[0, 0] * y.round())
    f.add("where", aten.where.self, x > 0, x, y)
    f.add("where promotes", aten.where.self, x > 0, h, torch.tensor(0.5, dtype=F64))
    f.add("where broadcast", aten.where.self, x > 0, torch.tensor(0.0), rand(4))
    f.add("masked_fill", lambda a, m: aten.masked_fill.Scalar(a, m, -INF), x, y > 0)
    f.add("masked_fill bf16", lambda a, m: aten.masked_fill.Scalar(a, m, 0.1), h, y > 0)
    f.add("masked_fill tensor", aten.masked_fill.Tensor, x, rand(4) > 0, torch.tensor(7.0))
    n = torch.tensor([NAN, -3.0, 0.5, 3.0])
    f.add("clamp", lambda a: (aten.clamp.default(a, -1, 1), aten.clamp.default(a, min=0), aten.clamp.default(a, None, 2), aten.clamp.default(a, 2, 1)), n)
    f.add("clamp bf16", lambda a: aten.clamp.default(a, -0.1, 0.1), h)
    f.add("clamp int float", lambda a: aten.clamp.default(a, 0.5), i)
    f.add("clamp tensor", aten.clamp.Tensor, x, rand(4) - 1, rand(4) + 1)
    f.add("clamp_min", lambda a: (aten.clamp_min.default(a, 0.0), aten.clamp_max.default(a, 0.0)), n)
    f.add("hardtanh", aten.hardtanh.default, n)
    f.save()


def activations():
    f = Family("activations")
    x, g = rand(4, 5, scale=3), rand(4, 5)
    for dtype in (torch.float32, BF16):
        a, b, tag = x.to(dtype), g.to(dtype), DTYPES[dtype]
        for name in ("silu", "gelu", "leaky_relu", "elu", "softplus", "mish", "hardswish", "hardsigmoid"):
            f.add(f"{name} {tag}", getattr(aten, name).default, a)
        f.add(f"gelu tanh {tag}", lambda a: aten.gelu.default(a, approximate="tanh"), a)
        f.add(f"log_sigmoid {tag}", lambda a: aten.log_sigmoid_forward.default(a), a)
        f.add(f"log_sigmoid_backward {tag}", lambda g, a: aten.log_sigmoid_backward.default(g, a, aten.log_sigmoid_forward.default(a)[1]), b, a)
        for name in ("silu", "gelu", "mish", "hardswish", "hardsigmoid"):
            f.add(f"{name}_backward {tag}", getattr(aten, f"{name}_backward").default, b, a)
        f.add(f"gelu_backward tanh {tag}", lambda g, a: aten.gelu_backward.default(g, a, approximate="tanh"), b, a)
        f.add(f"tanh_backward {tag}", aten.tanh_backward.default, b, a.tanh())
        f.add(f"sigmoid_backward {tag}", aten.sigmoid_backward.default, b, a.sigmoid())
        f.add(f"threshold_backward {tag}", lambda g, a: aten.threshold_backward.default(g, a, 0), b, a)
        f.add(f"leaky_relu_backward {tag}", lambda g, a: aten.leaky_relu_backward.default(g, a, 0.1, False), b, a)
        f.add(f"hardtanh_backward {tag}", lambda g, a: aten.hardtanh_backward.default(g, a, -1, 1), b, a)
        f.add(f"elu_backward {tag}", lambda g, a: (aten.elu_backward.default(g, 1.5, 1.1, 0.9, False, a), aten.elu_backward.default(g, 1.5, 1.1, 0.9, True, a)), b, a)
        f.add(f"softplus_backward {tag}", lambda g, a: aten.softplus_backward.default(g, a, 2.0, 20), b, a)
    f.save()


def views():
    f = Family("views")
    x = torch.arange(24.0).view(2, 3, 4)
    f.add("view", lambda a: (aten.view.default(a, [6, 4]), aten.view.default(a, [2, -1]), aten.view.default(a, [24])), x)
    f.add("transposes", lambda a: (aten.transpose.int(a, 0, 2), aten.transpose.int(a, -1, -2), aten.permute.default(a, [2, 0, 1]), aten.permute.default(a, [-1, 1, 0])), x)
    f.add("t", lambda a: aten.t.default(a), rand(3, 2))
    f.add("t 1-d", lambda a: aten.t.default(a), rand(3))
    f.add("expand", lambda a: (aten.expand.default(a, [5, 3, 4]), aten.expand.default(a, [2, -1, 3, -1])), rand(1, 3, 1).expand(1, 3, 4)[:1])
    f.add("squeeze", lambda a: (aten.squeeze.default(a), aten.squeeze.dim(a, 0), aten.squeeze.dim(a, 1), aten.squeeze.dims(a, [0, 2])), rand(1, 3, 1))
    f.add("unsqueeze", lambda a: (aten.unsqueeze.default(a, 0), aten.unsqueeze.default(a, -1), aten.unsqueeze.default(a, 1)), x)
    f.add("slice", lambda a: (aten.slice.Tensor(a, 0, 0, 1), aten.slice.Tensor(a, 1, -2, 9223372036854775807), aten.slice.Tensor(a, 2, 1, 4, 2), aten.slice.Tensor(a, 2, None, None)), x)
    f.add("slice empty", lambda a: aten.slice.Tensor(a, 1, 2, 1), x)
    f.add("select", lambda a: (aten.select.int(a, 0, 1), aten.select.int(a, -1, -1)), x)
    f.add("unbind", lambda a: aten.unbind.int(a, 1), x)
    f.add("split", lambda a: aten.split.Tensor(a, 3, 2), x)
    f.add("split sizes", lambda a: aten.split_with_sizes.default(a, [1, 2], 1), x)
    f.add("diagonal", lambda a: (aten.diagonal.default(a), aten.diagonal.default(a, 1, 1, 2), aten.diagonal.default(a, -1, 2, 0)), x)
    f.add("0-d", lambda a: (aten.view.default(a, [1]), aten.unsqueeze.default(a, 0), aten.expand.default(a, [3])), torch.tensor(2.0))
    f.save()


def moves():
    f = Family("moves")
    x, h = torch.arange(24.0).view(2, 3, 4), rand(2, 3, dtype=BF16)
    f.add("clone", lambda a: (aten.clone.default(aten.transpose.int(a, 0, 1), memory_format=torch.contiguous_format), aten.alias.default(a)), x)
    f.add("cat", lambda a, b: (aten.cat.default([a, b, a], 1), aten.cat.default([a, b], -2)), x, x + 1)
    f.add("cat promotes", lambda a, b: aten.cat.default([a, b]), rand(2, 3), h)
    f.add("cat empty", lambda a, b: aten.cat.default([b, a, a[:0]]), rand(2, 3), torch.empty(0))
    f.add("stack", lambda a, b: aten.stack.default([a, b], 1), x, x + 1)
    f.add("pad", lambda a: (aten.constant_pad_nd.default(a, [1, 2]), aten.constant_pad_nd.default(a, [1, 0, -2, 3], 9.0), aten.constant_pad_nd.default(a, [-1, 2, 1, 1, 2, 0])), x)
    f.add("pad int", lambda a: aten.constant_pad_nd.default(a, [1, 0]), torch.tensor([5, 6]))
    f.add("slice_backward", lambda g: (aten.slice_backward.default(g, [2, 5, 4], 1, 1, 4, 1), aten.slice_backward.default(g, [2, 7, 4], 1, 1, 7, 2), aten.slice_backward.default(g, [2, 8, 4], 1, 0, 9223372036854775807, 3)), x)
    f.add("slice_scatter", lambda a, s: (aten.slice_scatter.default(a, s, 2, 1, 3), aten.slice_scatter.default(a, s, 2, 0, 4, 2)), x, rand(2, 3, 2))
    f.add("select_backward", lambda g: (aten.select_backward.default(g, [2, 3, 5], 2, 1), aten.select_backward.default(g, [4, 2, 3], 0, -1)), h)
    f.add("select_scatter", lambda a, s: aten.select_scatter.default(a, s, 2, -1), x, rand(2, 3))
    f.add("repeat", lambda a: (aten.repeat.default(a, [2, 3]), aten.repeat.default(a, [2, 1, 2])), h)
    f.add("flip", lambda a: aten.flip.default(a, [0, 2]), x)
    f.add("roll", lambda a: (aten.roll.default(a, [1, -1], [0, 2]), aten.roll.default(a, [5])), x)
    f.add("copy", aten.copy.default, x, rand(4, dtype=BF16))
    f.add("tril", lambda a: (aten.tril.default(a), aten.tril.default(a, 1), aten.triu.default(a, -1)), x)
    f.add("full", lambda a: (aten.full.default([2, 2], 0.1, dtype=BF16), aten.full_like.default(a, 3), aten.new_zeros.default(a, [2]), aten.ones.default([3], dtype=torch.int64), aten.scalar_tensor.default(0.1), aten.zeros_like.default(a)), x)
    f.add("fill", lambda a, v: (aten.fill.Scalar(a, 2.5), aten.fill.Tensor(a, v)), x, torch.tensor(3))
    f.add("arange", lambda a: (aten.arange.default(5), aten.arange.start(2, 9), aten.arange.start_step(2, 9, 3), aten.arange.start_step(0.5, 3.0, 0.25), aten.arange.start_step(5, 0, -2), a + aten.arange.default(4)), x)
    f.save()


def reductions():
    f = Family("reductions")
    x, h, i = rand(3, 4, 5), rand(3, 4, 5, dtype=BF16), torch.randint(-5, 5, (3, 4))
    f.add("sum", lambda a: (aten.sum.default(a), aten.sum.dim_IntList(a, [1]), aten.sum.dim_IntList(a, [0, -1], True), aten.sum.dim_IntList(a, [])), x)
    f.add("sum bf16", lambda a: (aten.sum.default(a), aten.sum.dim_IntList(a, [1]), aten.sum.dim_IntList(a, [0], dtype=torch.float32)), h)
    f.add("sum int", lambda a: (aten.sum.default(a), aten.sum.default(a > 0), aten.sum.dim_IntList(a, [0], dtype=torch.int32)), i)
    f.add("sum 0-d", lambda a: (aten.sum.default(a), aten.sum.dim_IntList(a, [0], True)), torch.tensor(2.0))
    f.add("sum of nothing", lambda a: (aten.sum.dim_IntList(a, [1]), aten.sum.default(a), aten.mean.default(a), aten.prod.dim_int(a, 1), aten.mean.dim(a, [1])), rand(3, 0))
    f.add("mean", lambda a: (aten.mean.default(a), aten.mean.dim(a, [1, 2], True), aten.mean.dim(a, [0], dtype=F64)), x)
    f.add("mean bf16", lambda a: (aten.mean.default(a), aten.mean.dim(a, [-1])), h)
    f.add("prod", lambda a: (aten.prod.default(a), aten.prod.dim_int(a, 1)), rand(3, 4))
    for dtype in (torch.float32, BF16):
        tag, a = DTYPES[dtype], x.to(dtype)
        f.add(f"var {tag}", lambda a: (aten.var.correction(a, [1]), aten.var.correction(a, [0, 2], correction=0, keepdim=True), aten.var.correction(a), aten.std.correction(a, [1], correction=2)), a)
        f.add(f"var_mean {tag}", lambda a: aten.var_mean.correction(a, [2], correction=0, keepdim=True), a)
    f.add("var of one", lambda a: aten.var.correction(a, [1]), rand(3, 1))
    n = torch.tensor([[3.0, NAN, 7.0], [NAN, NAN, 1.0], [-INF, -INF, -INF], [0.0, -0.0, 0.0], [2.0, 9.0, 9.0]])
    for dtype in (torch.float32, BF16):
        tag, a = DTYPES[dtype], n.to(dtype)
        f.add(f"extremes {tag}", lambda a: (aten.amax.default(a, [1]), aten.amin.default(a, [1], True), aten.amax.default(a), aten.max.default(a), aten.min.default(a)), a)
        f.add(f"max.dim {tag}", lambda a: aten.max.dim(a, 1), a)
        f.add(f"min.dim {tag}", lambda a: aten.min.dim(a, 0, True), a)
        f.add(f"argmax {tag}", lambda a: (aten.argmax.default(a), aten.argmax.default(a, 1), aten.argmin.default(a, 0, True)), a)
    f.add("extremes int", lambda a: (aten.amax.default(a, [1]), aten.argmin.default(a, 1), aten.max.default(a)), i)
    f.add("any", lambda a: (aten.any.default(a), aten.any.dim(a, 1), aten.all.default(a), aten.all.dim(a, 0, True)), i)
    f.add("logsumexp", lambda a: (aten.logsumexp.default(a, [1]), aten.logsumexp.default(a, [0, 2], True)), x)
    f.add("logsumexp inf", lambda a: aten.logsumexp.default(a, [1]), torch.tensor([[-INF, -INF], [INF, 1.0], [2.0, -INF]]))
    f.add("norms", lambda a: (aten.linalg_vector_norm.default(a), aten.linalg_vector_norm.default(a, 1, [1]), aten.linalg_vector_norm.default(a, INF, [0]), aten.linalg_vector_norm.default(a, 3, [2], True), aten.linalg_vector_norm.default(a, 0), aten.norm.ScalarOpt_dim(a, 2, [1])), x)
    f.save()


def softmax():
    f = Family("softmax")
    x, m = rand(3, 4, 5, scale=3), rand(2, 4)
    m[0] = -INF
    m[1, 0] = -INF
    for dtype in (torch.float32, BF16):
        tag, a, g = DTYPES[dtype], x.to(dtype), rand(3, 4, 5, dtype=dtype)
        f.add(f"softmax {tag}", lambda a: (aten._softmax.default(a, -1, False), aten._softmax.default(a, 0, False), aten._log_softmax.default(a, 1, False)), a)
        f.add(f"softmax_backward {tag}", lambda g, y: aten._softmax_backward_data.default(g, y, -1, y.dtype), g, a.softmax(-1))
        f.add(f"log_softmax_backward {tag}", lambda g, y: aten._log_softmax_backward_data.default(g, y, 1, y.dtype), g, a.log_softmax(1))
        f.add(f"masked {tag}", lambda a: (aten._softmax.default(a, -1, False), aten._safe_softmax.default(a, -1)), m.to(dtype))
    f.add("softmax 0-d", lambda a: (aten._softmax.default(a, 0, False), aten._log_softmax.default(a, -1, False)), torch.tensor(2.0))
    f.save()


def losses():
    f = Family("losses")
    x, w = rand(6, 5).log_softmax(1), torch.rand(5) + 0.5
    labels = torch.tensor([0, 4, -100, 2, 1, -100])
    image, pixels = rand(2, 5, 3, 2).log_softmax(1), torch.randint(0, 5, (2, 3, 2))
    pixels[0, 0, 0] = -100
    for reduction in (0, 1, 2):
        f.add(f"nll {reduction}", lambda a, t, r=reduction: aten.nll_loss_forward.default(a, t, None, r, -100), x, labels)
        f.add(f"nll weight {reduction}", lambda a, t, w, r=reduction: aten.nll_loss_forward.default(a, t, w, r, -100), x, labels, w)
        g = rand(6) if reduction == 0 else rand()
        for weight in (None, w):
            total = aten.nll_loss_forward.default(x, labels, weight, reduction, -100)[1]
            args = (g, x, labels, total) + (() if weight is None else (weight,))
            f.add(f"nll_backward {reduction} {weight is not None}", lambda g, a, t, total, w=None, r=reduction: aten.nll_loss_backward.default(g, a, t, w, r, -100, total), *args)
        f.add(f"nll2d {reduction}", lambda a, t, r=reduction: aten.nll_loss2d_forward.default(a, t, None, r, -100), image, pixels)
        total = aten.nll_loss2d_forward.default(image, pixels, None, reduction, -100)[1]
        g2 = rand(2, 3, 2) if reduction == 0 else rand()
        f.add(f"nll2d_backward {reduction}", lambda g, a, t, total, r=reduction: aten.nll_loss2d_backward.default(g, a, t, None, r, -100, total), g2, image, pixels, total)
    f.add("nll one row", lambda a, t: aten.nll_loss_forward.default(a, t, None, 1, -100), x[0], torch.tensor(3))
    f.add("nll all ignored", lambda a, t: aten.nll_loss_forward.default(a, t, None, 1, -100), x, torch.full((6,), -100))
    f.add("nll of nothing", lambda a, t: aten.nll_loss_forward.default(a, t, None, 2, -100), x[:0], labels[:0])
    f.add("nll bf16", lambda a, t: aten.nll_loss_forward.default(a, t, None, 2, -100), x.bfloat16(), labels)
    p, q = torch.rand(3, 4), torch.rand(3, 4)
    p[0, 0], q[0, 1] = 0.0, 1.0
    for reduction in (0, 1, 2):
        g = rand(3, 4) if reduction == 0 else rand()
        f.add(f"mse {reduction}", lambda a, b, r=reduction: aten.mse_loss.default(a, b, r), p, q)
        f.add(f"mse_backward {reduction}", lambda g, a, b, r=reduction: aten.mse_loss_backward.default(g, a, b, r), g, p, q)
        f.add(f"smooth_l1 {reduction}", lambda a, b, r=reduction: (aten.smooth_l1_loss.default(a, b, r, 0.3), aten.huber_loss.default(a, b, r, 0.3)), p, q)
        f.add(f"smooth_l1_backward {reduction}", lambda g, a, b, r=reduction: aten.smooth_l1_loss_backward.default(g, a, b, r, 0.3), g, p, q)
        f.add(f"bce {reduction}", lambda a, b, r=reduction: aten.binary_cross_entropy.default(a, b, None, r), p, q)
        f.add(f"bce_backward {reduction}", lambda g, a, b, r=reduction: aten.binary_cross_entropy_backward.default(g, a, b, None, r), g, p, q)
        f.add(f"bce logits {reduction}", lambda a, b, w, r=reduction: (aten.binary_cross_entropy_with_logits.default(a, b, None, None, r), aten.binary_cross_entropy_with_logits.default(a, b, w, w, r)), rand(3, 4, scale=4), q, torch.rand(4))
    f.save()


def norms():
    f = Family("norms")
    for dtype in (torch.float32, BF16):
        tag, x, g = DTYPES[dtype], rand(2, 3, 8, dtype=dtype), rand(2, 3, 8, dtype=dtype)
        w, b = rand(8, dtype=dtype), rand(8, dtype=dtype)
        f.add(f"layer_norm {tag}", lambda x, w, b: aten.native_layer_norm.default(x, [8], w, b, 1e-5), x, w, b)
        f.add(f"layer_norm plain {tag}", lambda x: aten.native_layer_norm.default(x, [3, 8], None, None, 1e-5), x)
        _, mean, rstd = aten.native_layer_norm.default(x, [8], w, b, 1e-5)
        f.add(f"layer_norm_backward {tag}", lambda g, x, m, r, w, b: aten.native_layer_norm_backward.default(g, x, [8], m, r, w, b, [True, True, True]), g, x, mean, rstd, w, b, exact=dtype == BF16)
        f.add(f"layer_norm_backward part {tag}", lambda g, x, m, r: aten.native_layer_norm_backward.default(g, x, [8], m, r, None, None, [True, False, False])[0], g, x, mean, rstd)
        image, gi = rand(2, 4, 3, 2, dtype=dtype), rand(2, 4, 3, 2, dtype=dtype)
        cw, cb = rand(4, dtype=dtype), rand(4, dtype=dtype)
        f.add(f"group_norm {tag}", lambda x, w, b: aten.native_group_norm.default(x, w, b, 2, 4, 6, 2, 1e-5), image, cw, cb)
        _, mean, rstd = aten.native_group_norm.default(image, cw, cb, 2, 4, 6, 2, 1e-5)
        f.add(f"group_norm_backward {tag}", lambda g, x, m, r, w: aten.native_group_norm_backward.default(g, x, m, r, w, 2, 4, 6, 2, [True, True, True]), gi, image, mean, rstd, cw)
    f.add("layer_norm offset", lambda x: aten.native_layer_norm.default(x, [8], None, None, 1e-5), rand(2, 8) + 10)
    image, gi, w, b = rand(4, 3, 2, 2), rand(4, 3, 2, 2), rand(3), rand(3)
    mean, var = rand(3), torch.rand(3) + 0.5
    f.add("batch_norm train", lambda x, w, b, m, v: aten._native_batch_norm_legit_functional.default(x, w, b, m, v, True, 0.1, 1e-5), image, w, b, mean, var)
    f.add("batch_norm eval", lambda x, w, b, m, v: aten._native_batch_norm_legit_functional.default(x, w, b, m, v, False, 0.1, 1e-5), image, w, b, mean, var)
    f.add("batch_norm 2-d", lambda x, m, v: aten._native_batch_norm_legit_functional.default(x, None, None, m, v, True, 0.1, 1e-5), rand(6, 3), mean, var)
    f.add("batch_norm no_stats", lambda x, w, b: aten._native_batch_norm_legit.no_stats(x, w, b, True, 0.1, 1e-5), image, w, b)
    f.add("batch_norm no_training", lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training.default(x, w, b, m, v, 0.1, 1e-5)[0], image, w, b, mean, var)
    for train in (True, False):
        _, sm, sr = aten.native_batch_norm.default(image, w, b, mean.clone(), var.clone(), train, 0.1, 1e-5)
        f.add(f"batch_norm_backward {train}", lambda g, x, w, m, v, sm, sr, t=train: aten.native_batch_norm_backward.default(g, x, w, m, v, sm, sr, t, 1e-5, [True, True, True]), gi, image, w, mean, var, sm, sr)
    f.save()


def indexing():
    f = Family("indexing")
    table, index = rand(7, 3), torch.tensor([[1, 6, 1], [0, 3, 1]])
    f.add("embedding", aten.embedding.default, table, index)
    f.add("embedding i32", aten.embedding.default, table, index.int())
    for dtype in (torch.float32, BF16):
        g = rand(2, 3, 3, dtype=dtype)
        f.add(f"embedding_backward {DTYPES[dtype]}", lambda g, i: (aten.embedding_dense_backward.default(g, i, 7, -1, False), aten.embedding_dense_backward.default(g, i, 7, 3, False)), g, index)
    f.add("index_select", lambda x, i: (aten.index_select.default(x, 0, i), aten.index_select.default(x, 1, i)), rand(3, 4, 2), torch.tensor([2, 0, 2]))
    f.add("gather", lambda x, i: (aten.gather.default(x, 1, i), aten.gather.default(x, 0, i)), rand(3, 4), torch.tensor([[0, 2], [1, 0]]))
    f.add("scatter_add", lambda x, i, s: aten.scatter_add.default(x, 1, i, s), rand(3, 4), torch.tensor([[0, 0, 2], [1, 1, 1]]), rand(3, 5))
    f.add("scatter_add bf16", lambda x, i, s: aten.scatter_add.default(x, 0, i, s), rand(3, 4, dtype=BF16), torch.tensor([[0, 0, 2, 2]]), rand(1, 4, dtype=BF16))
    f.add("index_add", lambda x, i, s: (aten.index_add.default(x, 0, i, s), aten.index_add.default(x, 0, i, s, alpha=2)), rand(3, 4), torch.tensor([2, 0, 2, 2]), rand(4, 4))
    x, i, j = rand(3, 4, 5), torch.tensor([0, -1, 2]), torch.tensor([[1], [-2]])
    f.add("index one", lambda x, i: (aten.index.Tensor(x, [i]), aten.index.Tensor(x, [None, i]), aten.index.Tensor(x, [None, None, i])), x, i)
    f.add("index two", lambda x, i, j: (aten.index.Tensor(x, [None, i, j.expand(2, 3)]), aten._unsafe_index.Tensor(x, [i.expand(2, 3), j.expand(2, 3)])) , x, i, j)
    f.add("index three", lambda x, i: aten.index.Tensor(x, [i, i, i]), x, i)
    f.add("index_put", lambda x, i, v: (aten.index_put.default(x, [i], v, True), aten._unsafe_index_put.default(x, [i, i], v[:, 0], True)), x, i, rand(3, 4, 5))
    f.add("index_put number", lambda x, i, v: aten.index_put.default(x, [None, i], v, True), x, i, torch.tensor(1.5))
    f.save()


def dropout():
    f = Family("dropout")
    x = rand(3, 4)
    f.add("off", lambda a: (*aten.native_dropout.default(a, 0.5, False), *aten.native_dropout.default(a, 0.0, True)), x)
    f.add("all", lambda a: aten.native_dropout.default(a, 1.0, True), x)
    f.add("backward", lambda g, m: aten.native_dropout_backward.default(g, m, 1.25), x, x > 0)
    f.add("backward bf16", lambda g, m: aten.native_dropout_backward.default(g, m, 1.25), x.bfloat16(), x > 0)
    f.save()


if __name__ == "__main__":
    torch.manual_seed(0)
    for family in (arithmetic, unary, comparisons, activations, views, moves, reductions, softmax, losses, norms, indexing,
                   dropout):
        family()
