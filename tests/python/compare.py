"""How compiled training is held against eager."""

import torch
import workloads


def loss_and_gradients(workload, model, batch, compiled=False, backend="stepone", autocast=False):
    """Runs forward and backward once; returns (loss, {name: gradient}). The model's gradients are cleared first."""
    model.zero_grad(set_to_none=True)
    runner = torch.compile(model, backend=backend) if compiled else model
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = workload.loss(runner, batch)
    loss.backward()
    gradients = {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}
    return loss.detach(), gradients


def assert_close_gradients(want, got, relative):
    """Each gradient within `relative` of eager's norm. Some gradients are zero in exact arithmetic (an attention's key
    bias), so what eager itself has as rounding noise, a millionth of the whole gradient's norm, is allowed on top."""
    assert want.keys() == got.keys()
    noise = 1e-6 * norm(want)
    for name, gradient in want.items():
        difference = (got[name].double() - gradient.double()).norm().item()
        bound = relative * gradient.double().norm().item() + noise
        assert difference <= bound, f"{name}: differs by {difference:.3e}, bound {bound:.3e}"


def norm(gradients):
    return sum(g.double().square().sum().item() for g in gradients.values()) ** 0.5


def distance(a, b):
    """Relative distance of two sets of gradients."""
    return norm({name: a[name].double() - b[name].double() for name in b}) / norm(b)


def loss_curve(workload, steps, compiled, learning_rate):
    model = workload.build(seed=0, dropout=False)
    optimizer = torch.optim.SGD(model.parameters(), learning_rate)
    runner = torch.compile(model, backend="stepone") if compiled else model
    return [workloads.sgd_step(workload, runner, optimizer, workload.make_batch(seed=step % 4)) for step in range(steps)]


def assert_all_compiled():
    """Each graph that was called ran our plan, and fused kernels ran. The backward of a part whose result the loss does
    not use is never called, and so stays pending; a call that found its plan pending would be an eager one."""
    import stepone

    report = stepone.report()
    assert report["graphs"], "nothing was handed to the backend"
    not_compiled = [(g["graph"], g["role"], g["status"], g["eager_reason"]) for g in report["graphs"]
                    if g["status"] not in ("compiled", "pending")]
    assert not not_compiled, not_compiled
    counters = report["counters"]
    assert counters["eager_calls"] == 0
    assert counters["kernel_launches"] > 0
    assert sum(g["fused_ops"] for g in report["graphs"]) > 0
