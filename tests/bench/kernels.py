"""Families of fused kernels against the same calls in eager mode, at a size that stays in the second-level cache and at one
that does not: median microseconds, and how much of memcpy's bandwidth the bytes make that must come and go."""

import argparse
import statistics
import time

import torch
from _measure import emit, empty_server

from stepone import records

_SIZES = {"cache": (128, 512), "memory": (4096, 2048)}
_TURN_S = 0.004    # how long one backend runs before the next one's turn

aten = torch.ops.aten


def _softmax(x):
    return torch.softmax(x, -1)


def _softmax_backward(grad, out):
    return aten._softmax_backward_data(grad, out, -1, torch.float32)


def _layer_norm(x, weight, bias):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)


def _layer_norm_backward(grad, x, mean, rstd, weight, bias):
    return aten.native_layer_norm_backward(grad, x, grad.shape[-1:], mean, rstd, weight, bias, [True, True, True])


def _rms_norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def _gelu_chain(x, bias, residual):
    return torch.nn.functional.gelu(x + bias) * 0.5 + residual


def _cross_entropy(logits, labels):
    return torch.nn.functional.cross_entropy(logits, labels)


def _dropout(x):
    return torch.nn.functional.dropout(x, 0.1)


def _column_sums(x):
    return x.sum(0)


def _sum(x):
    return (x * x).sum()


def _transposed_copy(x):
    return x.t().contiguous()


def cases(rows, columns):
    """By name: the function, its arguments."""
    x, y = torch.randn(rows, columns), torch.randn(rows, columns)
    row, other_row = torch.randn(columns), torch.randn(columns)
    mean, rstd = x.mean(-1, keepdim=True), torch.rsqrt(x.var(-1, unbiased=False, keepdim=True) + 1e-5)
    return {
        "softmax": (_softmax, [x]),
        "softmax backward": (_softmax_backward, [y, torch.softmax(x, -1)]),
        "layer norm": (_layer_norm, [x, row, other_row]),
        "layer norm backward": (_layer_norm_backward, [y, x, mean, rstd, row, other_row]),
        "RMS norm": (_rms_norm, [x, row]),
        "GELU chain": (_gelu_chain, [x, row, y]),
        "cross-entropy": (_cross_entropy, [x, torch.randint(0, columns, (rows,))]),
        "dropout": (_dropout, [x]),
        "column sums": (_column_sums, [x]),
        "sum of squares": (_sum, [x]),
        "transposed copy": (_transposed_copy, [x]),
    }


def compiled(function, arguments, endpoint):
    """The executable that the service makes of the function, and what it returns."""
    torch._dynamo.reset()
    records.reset()
    torch.compile(function, backend="stepone", options={"endpoint": endpoint})(*arguments)
    (record,) = records.all_records()
    if record.status != "compiled":
        raise SystemExit(f"{function.__name__}: {record.eager_reason}")
    return lambda: record.executable(list(arguments))


def check(name, ours, eager):
    if name == "dropout":
        return
    for mine, theirs in zip(ours(), eager() if isinstance(eager(), tuple) else (eager(),), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)


def medians(calls, rounds):
    """Median microseconds of a call, the calls taking turns."""
    counts, times = {}, {name: [] for name in calls}
    for name, call in calls.items():
        call()
        started = time.perf_counter()
        call()
        counts[name] = max(1, int(_TURN_S / max(time.perf_counter() - started, 1e-6)))
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            started = time.perf_counter()
            for _ in range(counts[name]):
                call()
            times[name].append((time.perf_counter() - started) / counts[name] * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def tensor_bytes(values):
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=25)
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--sizes", nargs="+", choices=_SIZES, default=list(_SIZES))
    options.add_argument("--cases", nargs="+", choices=list(cases(1, 1)), metavar="NAME")
    options = options.parse_args()
    torch.set_num_threads(options.threads)
    with empty_server() as server, torch.no_grad():
        for size in options.sizes:
            rows, columns = _SIZES[size]
            source, target = torch.randn(rows, columns), torch.empty(rows, columns)
            for name, (function, arguments) in cases(rows, columns).items():
                if options.cases and name not in options.cases:
                    continue
                calls = {"stepone": compiled(function, arguments, server.endpoint),
                         "eager": lambda function=function, arguments=arguments: function(*arguments),
                         "memcpy": lambda: target.copy_(source)}
                check(name, calls["stepone"], calls["eager"])
                took = medians(calls, options.rounds)
                moved = tensor_bytes(arguments) + tensor_bytes(calls["stepone"]())
                case = f"{name}, {size}"
                for config, microseconds in took.items():
                    emit("kernels", case, config, "median call", microseconds, "us")
                emit("kernels", case, "stepone", "of eager", took["stepone"] / took["eager"], "ratio")
                emit("kernels", case, "stepone", "of memcpy's bandwidth",
                     moved / took["stepone"] / (2 * source.nbytes / took["memcpy"]), "ratio")


if __name__ == "__main__":
    main()
