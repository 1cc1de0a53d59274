"""Hits that skip AOTAutograd: the same results to the last bit, for every convention that a bundle can carry; and what it
can't carry takes the way through AOTAutograd."""

import json
import subprocess
import sys
import time

import pytest
import stepone
import torch
import workloads
from stepone import _native, records
from stepone.bundle import TracedGraph
from stepone.config import Settings
from torch import nn
from torch.utils.checkpoint import checkpoint


def compiled_once(step, **options):
    """Results of `step(compile)` in a process that has compiled nothing yet, as far as that can be had in one process,
    and its counters after bundles were put."""
    torch._dynamo.reset()
    records.reset()
    torch.manual_seed(0)
    results = step(lambda function: torch.compile(function, backend="stepone", options=options))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        counters = stepone.counters()
        expected = counters.get("bundle.miss", 0) if not not_bundled(counters) else 0
        if counters["bundles_put"] + counters["bundle_put_failures"] >= expected:
            break
        time.sleep(0.01)
    assert counters["eager_calls"] == 0
    assert counters["bundle_put_failures"] == 0
    return results, counters


def not_bundled(counters):
    return [name.removeprefix("not bundled.") for name in counters if name.startswith("not bundled.")]


def assert_identical(want, got):
    assert len(want) == len(got)
    for number, (a, b) in enumerate(zip(want, got)):
        assert (a is None) == (b is None), number
        assert a is None or torch.equal(a, b) and a.requires_grad == b.requires_grad, number


def assert_hit_changes_nothing(step, graphs=1):
    by_tracing, _ = compiled_once(step, bundles=False)
    compiled_once(step)
    by_bundle, counters = compiled_once(step)
    assert counters.get("bundle.hit", 0) == graphs, counters
    assert counters["kernel_launches"] > 0
    assert_identical(by_tracing, by_bundle)


def gradients_and_buffers(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()] + [b.clone() for b in model.buffers()]


@pytest.mark.parametrize("name", workloads.ALL)
def test_a_workload_gets_the_same_bits_from_a_hit(name):
    workload = workloads.get(name)

    def step(compile):
        model, batch = workload.build(), workload.make_batch()
        torch.manual_seed(1)   # dropout
        loss = workload.loss(compile(model), batch)
        loss.backward()
        return [loss.detach(), *gradients_and_buffers(model)]

    by_tracing, first = compiled_once(step)
    if first.get("bundle.hit"):   # another test of this session has been there
        by_tracing, _ = compiled_once(step, bundles=False)
    by_bundle, counters = compiled_once(step)
    assert counters.get("bundle.hit", 0) == counters["graphs"] / 2 > 0, counters
    assert_identical(by_tracing, by_bundle)


def test_batch_norm_updates_its_statistics():
    def step(compile):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        call = compile(model)
        for _ in range(2):
            call(torch.randn(2, 3, 8, 8)).square().sum().backward()
        assert model[1].num_batches_tracked.item() == 2
        return gradients_and_buffers(model)

    assert_hit_changes_nothing(step)


def test_an_input_that_is_written_or_handed_back():
    def function(x, y):
        x.add_(y)
        return y, x * y

    def step(compile):
        torch.manual_seed(0)
        x, y = torch.randn(8), torch.randn(8, requires_grad=True)
        same, product = compile(function)(x, y)
        assert same is y
        product.sum().backward()
        return [x.detach(), product.detach(), y.grad]

    assert_hit_changes_nothing(step)


def test_outputs_that_the_loss_does_not_use_give_no_gradient():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.used(x).tanh(), self.unused(x).tanh()

    def step(compile):
        torch.manual_seed(0)
        model = Heads()
        compile(model)(torch.randn(3, 4))[0].sum().backward()
        assert model.unused.weight.grad is None
        return gradients_and_buffers(model)

    assert_hit_changes_nothing(step)


def test_an_input_that_was_computed_keeps_its_own_graph():
    def step(compile):
        torch.manual_seed(0)
        w, u = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)
        h = w * 2   # not a leaf; no gradient flows back to it through the second use
        result = compile(lambda h, u: ((h.detach() * u).tanh(), u.exp()))(h, u)
        result[0].sum().backward()
        h.sum().backward()
        return [w.grad, u.grad]

    assert_hit_changes_nothing(step)


def test_inference_and_autocast_and_checkpointing():
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 8))

    def inference(compile):
        with torch.no_grad():
            return [compile(model.eval())(torch.ones(4, 8))]

    def autocast(compile):
        model.train().zero_grad()
        torch.manual_seed(2)
        with torch.autocast("cpu", torch.bfloat16):
            loss = compile(model)(torch.ones(4, 8)).float().sum()
        loss.backward()
        return [loss.detach(), *gradients_and_buffers(model)]

    def checkpointed(compile):
        model.train().zero_grad()
        torch.manual_seed(2)
        loss = compile(lambda x: checkpoint(model, x, use_reentrant=False))(torch.ones(4, 8)).sum()
        loss.backward()
        return [loss.detach(), *gradients_and_buffers(model)]

    for step in (inference, autocast, checkpointed):
        assert_hit_changes_nothing(step)


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@pytest.mark.parametrize("reason, function", [
    ("an output that is a view of an input", lambda x: (x.view(2, 4), x.exp())),
    ("outputs that are views of one another", lambda x: (lambda y: (y, y[1:]))(x.exp())),
    ("higher-order op autograd_function_apply", lambda x: (_Double.apply(x.exp()),)),
])
def test_what_a_bundle_can_not_carry_is_traced_each_time(reason, function):
    def step(compile):
        torch.manual_seed(0)
        x = torch.randn(8, requires_grad=True)
        outputs = compile(function)(x)
        sum(output.sum() for output in outputs).backward()
        return [*(output.detach() for output in outputs), x.grad]

    x = torch.manual_seed(0) and torch.randn(8, requires_grad=True)
    want = function(x)
    sum(output.sum() for output in want).backward()
    for _ in range(2):
        got, counters = compiled_once(step)
        assert not_bundled(counters) == [reason]
        assert "bundle.hit" not in counters
        torch.testing.assert_close(got[-1], x.grad)


def test_dynamic_sizes_are_traced_each_time():
    call = torch.compile(lambda x: x.exp().sum(), backend="stepone", dynamic=True)
    x = torch.randn(5)
    torch.testing.assert_close(call(x), x.exp().sum())
    assert not_bundled(stepone.counters()) == ["an input that is no tensor"]


def test_a_bundle_that_does_not_fit_is_refused(monkeypatch):
    """The service vouches for what it sends, and is not believed blindly."""
    def step(compile):
        torch.manual_seed(0)
        x = torch.randn(8, requires_grad=True)
        compile(lambda x: x.sin().sum())(x).backward()
        return [x.grad]

    want, _ = compiled_once(step)
    original = stepone.bundle.Service.find_bundle

    class Liar:
        def __init__(self, bundle):
            self._bundle = bundle

        def __getattr__(self, name):
            return getattr(self._bundle, name)

        @property
        def convention(self):
            convention = self._bundle.convention
            return convention | {"gradients": convention["gradients"] * 2}

    monkeypatch.setattr(stepone.bundle.Service, "find_bundle", lambda *args: Liar(original(*args)))
    got, counters = compiled_once(step)
    assert counters["bundle.DATA_LOSS"] == 1 and "bundle.hit" not in counters
    assert_identical(want, got)


@pytest.mark.parametrize("part", ["trace_text", "metadata_of", "describe"])
def test_a_fault_of_the_client_takes_the_way_through_autograd(part, monkeypatch):
    def step(compile):
        torch.manual_seed(0)
        x = torch.randn(8, requires_grad=True)
        compile(lambda x: x.sinh().sum())(x).backward()
        return [x.grad]

    want, _ = compiled_once(step, bundles=False)
    if part == "metadata_of":   # reached by a hit alone
        compiled_once(step)

    def broken(*args):
        raise AttributeError("torch has changed")

    monkeypatch.setattr(stepone.bundle, part, broken)
    # Other options than any test before, for the part that a miss alone reaches.
    options = {"deterministic": True} if part == "describe" else {}
    torch._dynamo.reset()
    records.reset()
    got = step(lambda function: torch.compile(function, backend="stepone", options=options))
    counters = stepone.counters()
    assert counters["bundle.fault in the client"] == 1 and "bundle.hit" not in counters
    assert counters["eager_calls"] == 0 and counters["kernel_launches"] > 0
    assert_identical(want, got)


def _captured(function, *inputs):
    """What Dynamo captures of `function`: the graph and its inputs."""
    graphs = []

    def backend(gm, example_inputs):
        graphs.append((gm, example_inputs, TracedGraph(gm, example_inputs, Settings()).trace))
        return gm.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend)(*inputs)
    return graphs[0]


def _trace(function, *inputs):
    return _captured(function, *inputs)[2]


def test_a_trace_tells_apart_whatever_decides_what_a_graph_becomes():
    x = torch.ones(4, 4)
    base = _trace(lambda x: x * 2.0 + 1, x)
    assert base == _trace(lambda y: y * 2.0 + 1, torch.zeros(4, 4)), "names and values are not in it"
    constant = torch.ones(4)
    variants = {
        "constant": _trace(lambda x: x * 2.5 + 1, x),
        "integer for float": _trace(lambda x: x * 2 + 1, x),
        "op": _trace(lambda x: x * 2.0 - 1, x),
        "order": _trace(lambda x: (x + 1) * 2.0, x),
        "dtype": _trace(lambda x: x * 2.0 + 1, x.double()),
        "shape": _trace(lambda x: x * 2.0 + 1, torch.ones(4, 5)),
        "strides": _trace(lambda x: x * 2.0 + 1, torch.ones(4, 8)[:, ::2]),
        "requires_grad": _trace(lambda x: x * 2.0 + 1, x.clone().requires_grad_()),
        "leaf": _trace(lambda x: x * 2.0 + 1, x.clone().requires_grad_() * 1),
        "captured tensor": _trace(lambda x: x * constant + 1, x),
    }
    with torch.no_grad():
        variants["grad mode"] = _trace(lambda x: x * 2.0 + 1, x)
    with torch.autocast("cpu", torch.bfloat16):
        variants["autocast"] = _trace(lambda x: x * 2.0 + 1, x)
    torch.use_deterministic_algorithms(True)
    variants["deterministic"] = _trace(lambda x: x * 2.0 + 1, x)
    torch.use_deterministic_algorithms(False)
    texts = [base, *variants.values()]
    for name, text in variants.items():
        assert texts.count(text) == 1, name
    apart, shared = torch.ones(8), torch.ones(8)
    assert _trace(lambda x, y: x + y, apart[:4].clone(), apart[4:].clone()) != \
        _trace(lambda x, y: x + y, shared[:4], shared[4:])


_PROCESS = """
import json, torch, stepone
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16))
loss = torch.compile(model, backend="stepone")(torch.ones(4, 16)).square().sum()
loss.backward()
counters = stepone.counters()
print(json.dumps([loss.item(), [p.grad.tolist() for p in model.parameters()],
                  {name: n for name, n in counters.items() if name.startswith(("bundle.", "source."))}]))
"""


def test_the_next_process_gets_what_the_first_one_traced():
    """The first one ends right after its step, and still has told the service."""
    runs = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", _PROCESS], stdout=subprocess.PIPE, text=True, check=True, timeout=120)
        runs.append(json.loads(done.stdout))
    assert runs[0][2] == {"bundle.miss": 1, "source.compiled": 2}
    assert runs[1][2] == {"bundle.hit": 1, "source.memory": 2}
    assert runs[0][:2] == runs[1][:2]


def test_a_miss_is_explained_by_the_lines_that_differ():
    def step(size):
        def run(compile):
            x = torch.ones(size, requires_grad=True)
            compile(lambda x: (x * 3.25).tan().sum())(x).backward()
            return []
        return run

    compiled_once(step(9))
    compiled_once(step(11))
    answer = next(answer for answer in stepone.explain() if answer["role"] == "trace" and answer["found"])
    assert answer["graph"] is None
    torch._dynamo.reset()
    gm, inputs, _ = _captured(lambda x: (x * 3.25).tan().sum(), torch.ones(10, requires_grad=True))
    missed = TracedGraph(gm, inputs, Settings())
    (difference,) = missed.explain()["differences"]
    assert "input 0: torch.float32 (10,)" in difference["requested"]
    assert "input 0: torch.float32 (" in difference["nearest"] and "(10,)" not in difference["nearest"]


@pytest.mark.parametrize("convention, graph_keys, message", [
    ({"speed": 1}, {}, "speed"),
    ({"inputs": [{"is_leaf": "perhaps"}]}, {}, "is_leaf"),
    ({"forward_outputs": -1}, {}, "forward_outputs"),
    ({"outputs": [{"kind": "OUTPUT_KIND_PICKLE"}]}, {}, "OUTPUT_KIND_PICKLE"),
    ({"tangents": [{"sizes": [object()]}]}, {}, "not JSON serializable"),
    ({}, {"forward": "00" * 31}, "graph key of forward is no SHA-256"),
    ({}, {"inference": "zz" * 32}, "graph key of inference is no SHA-256"),
    ({}, {"joint": "00" * 32}, "forward, backward and inference"),
])
def test_only_what_the_message_can_say_is_told(convention, graph_keys, message):
    client = _native.Client(_native.Config())
    with pytest.raises(ValueError, match=message):
        client.put_bundle(b"trace", convention, graph_keys)
    assert _native.counters()["bundle_put_failures"] == _native.counters()["bundles_put"] == 0
    assert client.endpoint == "", "nothing was sent"


def test_switched_off_by_the_environment(monkeypatch):
    monkeypatch.setenv("STEPONE_BUNDLES", "0")
    torch.compile(lambda x: x.cos().sum(), backend="stepone")(torch.ones(3))
    assert not [name for name in stepone.counters() if name.startswith(("bundle.", "not bundled."))]
