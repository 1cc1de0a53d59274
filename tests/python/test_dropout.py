"""Random masks out of our own generator: the same in forward and backward, at the right rate, new in each step, and
reproducible under torch.manual_seed."""

import pytest
import torch
import workloads
from compare import assert_all_compiled

_SIZE = (256, 512)


def masks(compiled, rate):
    """Runs one step; returns (elements kept in the forward, elements kept in the backward, output, gradient)."""
    x = torch.ones(_SIZE, requires_grad=True)
    out = compiled(x, rate)
    out.sum().backward()
    return out.detach() != 0, x.grad != 0, out.detach(), x.grad


@pytest.fixture
def dropout():
    return torch.compile(lambda x, rate: torch.nn.functional.dropout(x * 2, rate) * 3, backend="stepone")


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_forward_and_backward_share_one_mask_at_the_right_rate(dropout, rate):
    forward, backward, out, gradient = masks(dropout, rate)
    assert torch.equal(forward, backward)
    kept = forward.double().mean().item()
    # Six standard deviations of the mean of that many coins.
    assert abs(kept - (1 - rate)) < 6 * (rate * (1 - rate) / forward.numel()) ** 0.5
    expected = torch.tensor(6.0 / (1 - rate))
    torch.testing.assert_close(out[forward], expected.expand(int(forward.sum())), rtol=1e-5, atol=0)
    torch.testing.assert_close(gradient[backward], expected.expand(int(backward.sum())), rtol=1e-5, atol=0)
    assert_all_compiled()


def test_masks_differ_between_steps_and_positions(dropout):
    first, second = masks(dropout, 0.5)[0], masks(dropout, 0.5)[0]
    agreement = (first == second).double().mean().item()
    assert abs(agreement - 0.5) < 0.02
    rows = (first[0] == first[1]).double().mean().item()
    assert abs(rows - 0.5) < 0.2


def test_a_seed_brings_the_same_masks_back(dropout):
    torch.manual_seed(7)
    first = [masks(dropout, 0.5)[0] for _ in range(2)]
    torch.manual_seed(7)
    again = [masks(dropout, 0.5)[0] for _ in range(2)]
    torch.manual_seed(8)
    other = masks(dropout, 0.5)[0]
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other)


def test_two_dropouts_of_one_graph_are_independent():
    def function(x):
        return torch.nn.functional.dropout(x, 0.5), torch.nn.functional.dropout(x, 0.5)

    a, b = torch.compile(function, backend="stepone")(torch.ones(_SIZE))
    assert abs(((a != 0) == (b != 0)).double().mean().item() - 0.5) < 0.02


@pytest.mark.parametrize("name", [name for name, workload in workloads.ALL.items() if workload.has_dropout])
def test_training_with_dropout_learns_reproducibly(name):
    workload = workloads.get(name)

    def train(seed):
        model = workload.build(dropout=True)
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        runner = torch.compile(model, backend="stepone")
        torch.manual_seed(seed)
        return [workloads.sgd_step(workload, runner, optimizer, workload.make_batch()) for _ in range(10)]

    first, again, other = train(1), train(1), train(2)
    assert first == pytest.approx(again, rel=1e-5)
    assert first != pytest.approx(other, rel=1e-5)
    assert first[-1] < first[0]
    assert_all_compiled()
