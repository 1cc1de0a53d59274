"""STEPONE_INTERCEPT: other backends' programs, modes and options."""

import json
import os
import subprocess
import sys

import pytest
from stepone.config import intercepted_backends
from stepone.intercept import NoCounterpart, translate


@pytest.mark.parametrize("asked, got", [
    (("inductor", None, None), (None, None)),
    (("inductor", "default", None), ("default", None)),
    (("inductor", "max-autotune", None), ("max-autotune", None)),
    (("inductor", None, {"max_autotune": True}), (None, {"mode": "max-autotune-no-cudagraphs"})),
    (("inductor", None, {"triton.cudagraphs": True}), (None, {"mode": "reduce-overhead"})),
    (("inductor", None, {"max-autotune": True, "triton.cudagraphs": True}), (None, {"mode": "max-autotune"})),
    (("inductor", None, {"max_autotune": False}), (None, None)),
    (("inductor", None, {"fallback_random": True}), (None, {"fallback_random": True})),
    (("cudagraphs", None, None), ("reduce-overhead", None)),
    (("hpu_backend", None, None), (None, None)),
    (("neuron", "max-autotune", {}), ("max-autotune", {})),
])
def test_modes_and_options_are_mapped(asked, got):
    assert translate(*asked) == got


@pytest.mark.parametrize("asked, named", [
    (("inductor", None, {"shape_padding": True}), "shape_padding"),
    (("inductor", "fastest", None), "fastest"),
    (("neuron", None, {"max_autotune": True}), "max_autotune"),
    (("inductor", None, {"use_aoti": True}), "use_aoti"),
])
def test_what_has_no_counterpart_is_named(asked, named):
    with pytest.raises(NoCounterpart, match=named):
        translate(*asked)


def test_the_variable_is_a_list_of_names(monkeypatch):
    monkeypatch.setenv("STEPONE_INTERCEPT", " inductor, neuron,,stepone ")
    assert intercepted_backends() == {"inductor", "neuron"}
    monkeypatch.delenv("STEPONE_INTERCEPT")
    assert intercepted_backends() == frozenset()


_PROGRAM = """
import json, logging, torch
from torch import nn
logging.basicConfig()
model = nn.Sequential(nn.Linear(8, 8), nn.GELU())
torch.compile(model)(torch.ones(4, 8)).sum().backward()
torch.compile(backend="inductor", mode="max-autotune")(lambda x: x.exp() + 1)(torch.ones(4))
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return self.linear(x).tanh()


module = Own()
module.compile()
module(torch.ones(4, 8)).sum().backward()
eager = torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
left = torch.compile(lambda x: x + 1, options={"shape_padding": True})   # not called: Inductor needs a compiler
import stepone
report = stepone.report()
print(json.dumps([[g["role"], g["mode"], g["status"]] for g in report["graphs"]]))
"""


def test_a_program_for_inductor_runs_here():
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=os.environ | {"STEPONE_INTERCEPT": "inductor"}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [
        ["forward", "default", "compiled"], ["backward", "default", "compiled"],
        ["inference", "max-autotune", "compiled"],
        ["forward", "default", "compiled"], ["backward", "default", "compiled"]]
    assert "left to inductor: option 'shape_padding' has no counterpart" in done.stderr
