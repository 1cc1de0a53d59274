"""The exporter alone: what it writes for small graphs, and that the written graph of each workload computes the same."""

import pytest
import torch
import workloads
from compare import assert_close_gradients, loss_and_gradients
from recording import RecordingBuilder, Value
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from stepone.export_graph import INLINE_CONSTANT_BYTES, Unexportable, export_graph
from stepone.symbols import Symbols


def symbols_of(gm):
    return Symbols([node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"])


def export(gm, binding=None, static_inputs=frozenset()):
    builder = RecordingBuilder()
    symbols = symbols_of(gm)
    exported = export_graph(gm, builder, symbols.evaluator(symbols.hint() if binding is None else binding),
                            static_inputs)
    return builder, exported


def capture(function, *args, dynamic=False):
    """Graphs of `function` after AOTAutograd, in the order in which they are lowered."""
    graphs = []

    def compiler(gm, inputs):
        graphs.append(gm)
        return gm.forward

    backend = aot_autograd(fw_compiler=compiler, partition_fn=min_cut_rematerialization_partition)
    out = torch.compile(function, backend=backend, dynamic=dynamic)(*args)
    if isinstance(out, torch.Tensor) and out.requires_grad:
        out.sum().backward()
    return graphs


def record(function, *args):
    (gm,) = capture(function, *args)
    return export(gm)[0]


def test_arguments_are_complete_and_in_schema_order():
    builder = record(lambda x: torch.clamp(x + 2, min=0.5), torch.randn(3))
    add, clamp = builder.nodes
    assert add.op == "aten.add.Tensor"
    assert add.args[1:] == [("other", 2), ("alpha", 1)]
    assert clamp.args[1:] == [("min", 0.5), ("max", None)]


def test_one_number_stands_for_a_whole_list():
    builder = record(lambda x: torch.ops.aten.max_pool2d_with_indices(x, 2)[0], torch.randn(1, 1, 4, 4))
    arguments = dict(builder.nodes[0].args)
    assert arguments["kernel_size"] == [2, 2] and arguments["stride"] == [] and arguments["padding"] == [0, 0]


def test_getitem_becomes_results_and_unread_ones_are_none():
    builder = record(lambda x: torch.nn.functional.layer_norm(x, (4,)), torch.randn(2, 4))
    (node,) = builder.nodes
    assert node.op == "aten.native_layer_norm.default"
    assert [result is None for result in node.results] == [False, True, True]
    assert not node.results_are_list


@pytest.mark.parametrize("function", [lambda x: x.split(2)[1] + 1, lambda x: x.unbind(0)[1] + 1])
def test_list_results_and_their_aliases(function):
    builder = record(function, torch.randn(4, 3))
    node = builder.nodes[0]
    assert node.results_are_list
    assert [result is None for result in node.results][:2] == [True, False]
    assert node.result_aliases[1] is builder.inputs[0]


def test_none_inside_a_tensor_list():
    builder = record(lambda x, i: x[:, i], torch.randn(3, 4), torch.tensor([0, 2]))
    node = next(node for node in builder.nodes if node.op == "aten.index.Tensor")
    assert dict(node.args)["indices"] == [None, builder.inputs[1]]


def test_views_name_their_source_and_functional_ops_nothing():
    builder = record(lambda x: x.t() + 1, torch.randn(3, 4))
    transpose, add = builder.nodes
    assert transpose.result_aliases == [builder.inputs[0]] and transpose.results[0].strides == (1, 4)
    assert add.result_aliases == [None] and add.mutated == []


def test_random_ops_are_marked():
    builder = record(lambda x: torch.nn.functional.dropout(x, 0.5) + x, torch.randn(8))
    assert [node.uses_rng for node in builder.nodes] == [node.op.startswith("aten.native_dropout")
                                                         or node.op.startswith("aten.bernoulli")
                                                         or node.op.startswith("aten.rand")
                                                         for node in builder.nodes]
    assert any(node.uses_rng for node in builder.nodes)


def test_dtypes_devices_and_default_dtypes_given_as_numbers():
    builder = record(lambda x: x.to(torch.float64) + torch.randint(3, (2,)), torch.randn(2))
    cast = next(node for node in builder.nodes if node.op == "aten._to_copy.default")
    assert dict(cast.args)["dtype"] == torch.float64
    randint = next(node for node in builder.nodes if node.op.startswith("aten.randint"))
    assert dict(randint.args)["dtype"] == torch.int64
    assert dict(randint.args)["device"] in (None, torch.device("cpu"))


def test_small_constants_travel_inside_and_large_ones_beside():
    small, large = torch.arange(4.0), torch.randn(INLINE_CONSTANT_BYTES)

    class Model(torch.nn.Module):
        def forward(self, x):
            return x + torch.tensor([1.0, 2.0, 3.0, 4.0])

    (gm,) = capture(Model(), small)
    builder, exported = export(gm)
    assert [c.tolist() for c in builder.constants.values()] == [[1.0, 2.0, 3.0, 4.0]]
    assert exported.extra_inputs == () and len(builder.inputs) == 1

    name = next(node.target for node in gm.graph.nodes if node.op == "get_attr")
    setattr(gm, name, large[:4].expand(INLINE_CONSTANT_BYTES, 4).contiguous())
    builder, exported = export(gm)
    assert not builder.constants and len(builder.inputs) == 2
    assert exported.extra_inputs[0].shape == (INLINE_CONSTANT_BYTES, 4)


def test_static_inputs_are_marked():
    (gm,) = capture(lambda x, y: x + y, torch.randn(2), torch.randn(2))
    assert export(gm, static_inputs=frozenset([1]))[0].static == [False, True]


def test_each_binding_gets_its_own_numbers():
    (gm,) = capture(lambda x: (x.reshape(-1) * x.shape[0]).sum(), torch.randn(6, 4), dynamic=True)
    symbols = symbols_of(gm)
    assert symbols.hint() in ((6, 4), (4, 6))
    order = symbols.hint().index(6)
    binding = [0, 0]
    binding[order], binding[1 - order] = 10, 3
    builder, _ = export(gm, tuple(binding))
    x = next(value for value in builder.inputs if value.kind == "tensor")
    assert x.sizes == (10, 3) and x.strides == (3, 1)
    view = next(node for node in builder.nodes if "view" in node.op or "reshape" in node.op)
    assert view.results[0].sizes == (30,)
    multiply = next(node for node in builder.nodes if node.op == "aten.mul.Tensor")
    assert dict(multiply.args)["other"] == 10
    args = [torch.ones(10, 3) if value.kind == "tensor" else value.number for value in builder.inputs]
    assert symbols.bind(args) == tuple(binding)
    assert builder.run(args)[0].item() == 300


def test_a_size_that_depends_on_data_is_refused_by_name():
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        graphs = capture(lambda x: x.nonzero() + 1, torch.tensor([1.0, 0.0, 2.0]))
    with pytest.raises(Unexportable) as refusal:
        export(graphs[0])
    assert refusal.value.reason == "size that depends on data" and refusal.value.node == "nonzero"


def test_a_higher_order_op_is_refused_by_name():
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    graphs = capture(function, torch.randn(3))
    with pytest.raises(Unexportable) as refusal:
        export(graphs[-1])
    assert refusal.value.reason.startswith("higher-order op")


@pytest.mark.parametrize("name", workloads.ALL)
def test_the_exported_graph_computes_what_the_model_does(name):
    """Forward and backward of each workload, exported and run op by op, give eager's loss and gradients."""
    workload = workloads.get(name)
    batch = workload.make_batch()
    want = loss_and_gradients(workload, workload.build(dropout=False), batch)
    exported = []

    def compiler(gm, inputs):
        builder, result = export(gm)
        exported.append(builder)

        def run(args):
            values = [*args, *result.extra_inputs]
            args.clear()
            return builder.run(values)
        run._boxed_call = True
        return run

    backend = aot_autograd(fw_compiler=compiler, partition_fn=min_cut_rematerialization_partition)
    got = loss_and_gradients(workload, workload.build(dropout=False), batch, compiled=True, backend=backend)
    assert len(exported) >= 2
    torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-6)
    assert_close_gradients(want[1], got[1], relative=1e-5)
    for builder in exported:
        defined = set(builder.constants) | set(builder.inputs)
        for node in builder.nodes:
            used = [v for _, a in node.args for v in (a if isinstance(a, list) else [a]) if isinstance(v, Value)]
            assert defined.issuperset(used), f"{node.name} reads a value before it is defined"
            defined.update(result for result in node.results if result is not None)
