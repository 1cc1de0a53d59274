"""What goes wrong with the service costs time and one warning; it never changes a number or ends a training."""

import socket
import threading

import pytest
import torch
import workloads
from server import Server, address

import stepone
from stepone.compiled_graph import CompiledGraph

_STEPS = 4


def train(**options):
    workload = workloads.get("mlp")
    model = workload.build(dropout=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    runner = torch.compile(model, backend="stepone", options=options) if options else model
    return [workloads.sgd_step(workload, runner, optimizer, workload.make_batch()) for _ in range(_STEPS)]


@pytest.fixture(scope="module")
def eager_losses():
    return train()


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "stepone"]


def test_nobody_listens(caplog, eager_losses):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{probe.getsockname()[1]}"
    assert train(endpoint=endpoint) == pytest.approx(eager_losses)
    (warning,) = warnings_of(caplog)
    assert "runs eagerly" in warning and "UNAVAILABLE" in warning
    counters = stepone.counters()
    assert counters["eager_calls"] == 2 * _STEPS and counters["fallback.UNAVAILABLE"] >= 2
    assert counters["kernel_launches"] == 0
    assert stepone.report()["eager"] == {"UNAVAILABLE": 2}


def test_a_listener_that_stays_silent_costs_one_wait(caplog, eager_losses):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        endpoint = f"127.0.0.1:{listener.getsockname()[1]}"
        assert train(endpoint=endpoint, wait_s=0.5) == pytest.approx(eager_losses)
    assert len(warnings_of(caplog)) == 1
    assert stepone.counters()["eager_calls"] == 2 * _STEPS


def test_an_unknown_backend_lists_the_known_ones(caplog, eager_losses):
    assert train(backend="nosuch") == pytest.approx(eager_losses)
    (warning,) = warnings_of(caplog)
    assert "INVALID_ARGUMENT" in warning and "nosuch" in warning and "known: " in warning and "stepone" in warning


def test_a_graph_that_can_not_cross_the_wire_runs_eagerly(caplog):
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    x = torch.ones(3)
    assert torch.equal(torch.compile(function, backend="stepone")(x), x + 1)
    (warning,) = warnings_of(caplog)
    assert "higher-order op cond" in warning
    assert stepone.counters()["fallback.higher-order op cond"] == 1


def test_a_server_that_is_killed_leaves_what_runs_running(private_folder, caplog, eager_losses):
    with Server(private_folder) as server:
        assert train(endpoint=server.endpoint) == pytest.approx(eager_losses)
        assert stepone.counters()["eager_calls"] == 0
        server.kill()
        torch._dynamo.reset()
        assert train(endpoint=server.endpoint) == pytest.approx(eager_losses)
    assert stepone.counters()["eager_calls"] == 2 * _STEPS
    assert any("UNAVAILABLE" in warning for warning in warnings_of(caplog))


def test_a_server_that_comes_back_is_taken_up_by_a_running_training(private_folder):
    """Started only after the first step; the same compiled model is swapped in without a restart of the trainer."""
    workload = workloads.get("mlp")
    model, batch = workload.build(dropout=False), workload.make_batch()
    runner = torch.compile(model, backend="stepone", options={"endpoint": address(private_folder)})
    with torch.no_grad():
        want = workload.loss(runner, batch)
        assert stepone.counters()["eager_calls"] == 1
        with Server(private_folder):
            while not stepone.counters()["swapped_in"]:
                torch.testing.assert_close(workload.loss(runner, batch), want)
            torch.testing.assert_close(workload.loss(runner, batch), want, rtol=1e-5, atol=1e-6)
    assert stepone.counters()["kernel_launches"] > 0


def test_training_is_not_ended_by_a_fault_of_ours(monkeypatch, caplog, eager_losses):
    def broken(self, entry):
        raise KeyError("a fault")

    monkeypatch.setattr(CompiledGraph, "_export", broken)
    assert train(wait_s=1.0) == pytest.approx(eager_losses)
    (warning,) = warnings_of(caplog)
    assert "KeyError" in warning


def test_threads_may_share_a_compiled_function():
    compiled = torch.compile(lambda x: torch.tanh(x) * 3, backend="stepone")
    compiled(torch.zeros(16, 16))
    failures = []

    def work(seed):
        x = torch.randn(16, 16, generator=torch.Generator().manual_seed(seed))
        for _ in range(20):
            if not torch.allclose(compiled(x), torch.tanh(x) * 3, atol=1e-5):
                failures.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
