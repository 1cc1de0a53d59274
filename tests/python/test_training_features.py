"""What real training scripts do around a compiled model."""

import pytest
import torch
import workloads
from compare import assert_all_compiled, assert_close_gradients
from torch import nn


def twin(make):
    """Two equal models, the second one compiled: (eager model, our model, our runner)."""
    torch.manual_seed(0)
    eager = make()
    torch.manual_seed(0)
    ours = make()
    return eager, ours, torch.compile(ours, backend="stepone")


def gradients(model):
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def same_state(eager, ours):
    for (name, want), got in zip(eager.state_dict().items(), ours.state_dict().values(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {text}")


def test_batch_norm_updates_its_statistics_and_uses_them_in_eval():
    eager, ours, runner = twin(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                                                     nn.Linear(8 * 36, 4)))
    for step in range(3):
        x = torch.randn(4, 3, 8, 8)
        for model, call in ((eager, eager), (ours, runner)):
            model.zero_grad()
            call(x).square().sum().backward()
        assert_close_gradients(gradients(eager), gradients(ours), 1e-4)
        same_state(eager, ours)
    assert ours[1].num_batches_tracked.item() == 3
    eager.eval(), ours.eval()
    with torch.no_grad():
        x = torch.randn(4, 3, 8, 8)
        torch.testing.assert_close(runner(x), eager(x), rtol=1e-4, atol=1e-5)
    same_state(eager, ours)
    assert_all_compiled()


def test_tied_weights_get_both_gradients():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(50, 16)
            self.head = nn.Linear(16, 50, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, ids):
            return self.head(torch.tanh(self.embedding(ids)))

    eager, ours, runner = twin(Tied)
    ids = torch.randint(50, (4, 7))
    for call in (eager, runner):
        nn.functional.cross_entropy(call(ids).flatten(0, 1), ids.flatten()).backward()
    assert_close_gradients(gradients(eager), gradients(ours), 1e-4)
    assert ours.head.weight.grad is ours.embedding.weight.grad
    assert_all_compiled()


def test_gradient_accumulation_sums_micro_batches():
    workload = workloads.get("bert")
    eager, ours = workload.build(dropout=False), workload.build(dropout=False)
    runner = torch.compile(ours, backend="stepone")
    for seed in range(3):
        batch = workload.make_batch(seed)
        (workload.loss(eager, batch) / 3).backward()
        (workload.loss(runner, batch) / 3).backward()
    assert_close_gradients(gradients(eager), gradients(ours), 1e-4)
    assert_all_compiled()


@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_gradient_checkpointing(rate):
    def make():
        from transformers import GPT2Config, GPT2LMHeadModel

        model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=2, n_head=2,
                                           resid_pdrop=rate, embd_pdrop=rate, attn_pdrop=rate, use_cache=False,
                                           bos_token_id=0, eos_token_id=0))
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train()

    eager, ours, runner = twin(make)
    ids = torch.randint(64, (2, 16))
    losses = []
    for step in range(3):
        ours.zero_grad()
        loss = runner(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(loss.item())
    if rate == 0.0:
        eager(input_ids=ids, labels=ids).loss.backward()
        assert_close_gradients(gradients(eager), gradients(ours), 1e-4)
        assert losses[0] == pytest.approx(losses[2], rel=1e-5)
    else:
        assert len(set(losses)) == 3, "the masks do not change from step to step"
    assert_all_compiled()


def test_eval_between_steps():
    workload = workloads.get("gpt2")
    batch = workload.make_batch()
    eager, ours = workload.build(dropout=True), workload.build(dropout=True)
    runner = torch.compile(ours, backend="stepone")
    workload.loss(runner, batch).backward()
    eager.eval(), ours.eval()
    with torch.no_grad():
        want = workload.loss(eager, batch)
        torch.testing.assert_close(workload.loss(runner, batch), want, rtol=1e-4, atol=0)
    ours.train()
    noisy = workload.loss(runner, batch)
    noisy.backward()
    assert noisy.item() != pytest.approx(want.item(), rel=1e-6), "dropout is off after train()"
    assert_all_compiled()


def test_sizes_that_change_are_compiled_one_by_one_up_to_the_limit():
    import stepone

    compiled = torch.compile(lambda x: torch.softmax(x * 2, -1) + x.shape[0], backend="stepone", dynamic=True,
                             options={"max_bindings": 3})
    for rows in (3, 4, 5, 6, 3, 6):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), torch.softmax(x * 2, -1) + rows)
    counters = stepone.counters()
    assert counters["fallback.too many shapes"] == 2 and counters["eager_calls"] == 2
    assert [g["status"] for g in stepone.report()["graphs"]] == ["compiled"] * 3


def test_an_index_out_of_range_is_an_ordinary_error():
    compiled = torch.compile(lambda w, i: nn.functional.embedding(i, w) * 2, backend="stepone")
    weight = torch.randn(5, 3)
    with pytest.raises((IndexError, RuntimeError), match="(?i)index|range|bound"):
        compiled(weight, torch.tensor([1, 7]))
    index = torch.tensor([1, 4])
    torch.testing.assert_close(compiled(weight, index), weight[index] * 2)


def test_the_report_names_what_happened(capsys):
    import stepone

    compiled = torch.compile(lambda x: torch.nn.functional.gelu(x).sum(), backend="stepone", mode="max-autotune")
    compiled(torch.randn(64, 64))
    report = stepone.report()
    (graph,) = report["graphs"]
    assert graph["mode"] == "max-autotune" and graph["role"] == "inference" and len(graph["key"]) == 64
    assert graph["source"] in ("compiled", "memory", "disk")
    assert graph["fused_op_share"] == 1.0 and graph["kernels"] and not graph["extern_ops"]
    assert set(graph["phases_ms"]) == {"trace", "export", "wait", "load", "queue", "compile", "request"}
    assert any("max-autotune" in note for note in report["notes"]), "a mode that does not differ must say so"
    assert graph["key"][:12] in str(report)


def test_a_head_that_the_loss_does_not_use_gets_no_gradient():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return self.used(x), self.unused(x)

    _, ours, runner = twin(TwoHeads)
    x = torch.randn(4, 3)
    runner(x)[0].sum().backward()
    assert gradients(ours).keys() == {"used.weight", "used.bias"}
    sum(output.sum() for output in runner(x)).backward()
    assert gradients(ours).keys() == {"used.weight", "used.bias", "unused.weight", "unused.bias"}
    torch.testing.assert_close(ours.unused.weight.grad, x.sum(0).expand(2, 3))
    torch.testing.assert_close(ours.used.weight.grad, 2 * x.sum(0).expand(2, 3))
    assert_all_compiled()


def test_dropout_that_is_off_hands_back_its_very_input():
    def change(h):
        same = nn.functional.dropout(h * 1, 0.4, training=False)
        seen = same.detach()
        nn.functional.dropout(same, 0.0).add_(1)
        return same, seen

    h = torch.full((3,), 2.0)
    for result in torch.compile(change, backend="stepone")(h):
        assert result.tolist() == [3.0] * 3
