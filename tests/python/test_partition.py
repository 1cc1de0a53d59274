"""What happens to a joint graph before it is split."""

import operator

import torch
from stepone.partition import merge_equal_nodes
from torch.fx.experimental.proxy_tensor import make_fx


def graph_of(function, *inputs):
    return make_fx(function, tracing_mode="fake")(*inputs)


def calls(gm, op):
    return sum(node.target is op for node in gm.graph.nodes)


def test_equal_calls_are_made_once_and_the_result_stays():
    def function(x):
        return (x.exp() + 1) * (x.exp() + 1) + (x.exp() + 1.5)

    x = torch.randn(4)
    gm = graph_of(function, x)
    assert merge_equal_nodes(gm.graph) == 3   # two of exp, one of the two equal sums
    gm.recompile()
    assert calls(gm, torch.ops.aten.exp.default) == 1
    assert calls(gm, torch.ops.aten.add.Tensor) == 3
    assert torch.equal(gm(x), function(x))


def test_numbers_of_different_types_are_different_arguments():
    gm = graph_of(lambda x: (torch.full_like(x, 1), torch.full_like(x, 1.0), torch.full_like(x, True)), torch.ones(2))
    assert merge_equal_nodes(gm.graph) == 0


def test_random_and_uninitialized_values_stay_apart():
    def function(x):
        a, b = torch.rand_like(x), torch.rand_like(x)
        return (a * 2).sum() + (b * 2).sum() + (torch.empty_like(x) * 0).sum() + (torch.empty_like(x) * 0).sum()

    gm = graph_of(function, torch.ones(2))
    merge_equal_nodes(gm.graph)
    assert calls(gm, torch.ops.aten.rand_like.default) == 2
    assert calls(gm, torch.ops.aten.empty_like.default) == 2


def test_outputs_keep_their_own_storage():
    gm = graph_of(lambda x: (x.exp(), x.exp()), torch.ones(2))
    assert merge_equal_nodes(gm.graph) == 0
    gm = graph_of(lambda x: (x.exp().view(2, 1), x.exp().view(1, 2)), torch.ones(2))
    assert merge_equal_nodes(gm.graph) == 0


def test_nothing_is_merged_across_a_write_in_place():
    def function(x):
        before = x.exp() * 2
        x.add_(1)
        return (before + x.exp() * 2) * 1

    x = torch.ones(3)
    gm = graph_of(function, x)
    assert merge_equal_nodes(gm.graph) == 0
    want = function(torch.ones(3))
    assert torch.equal(gm(torch.ones(3)), want)


def test_results_of_equal_calls_with_several_results_are_shared():
    def function(x):
        return x.max(0)[0] + x.max(0)[0] * 1

    gm = graph_of(function, torch.randn(3, 3))
    assert merge_equal_nodes(gm.graph) == 3   # the call, and both of its getitems
    assert calls(gm, operator.getitem) == 2


def test_what_the_user_said_about_recomputing_is_kept():
    gm = graph_of(lambda x: (x.exp() + x.exp()) * 1, torch.ones(2))
    first, second = (node for node in gm.graph.nodes if node.target is torch.ops.aten.exp.default)
    second.meta["recompute"] = "must"
    assert merge_equal_nodes(gm.graph) == 0
