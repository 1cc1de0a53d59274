"""The switch of the Hugging Face Trainer, and nothing else, trains through the service."""

import pytest
import torch
from compare import assert_all_compiled

import stepone

_STEPS = 6


def train(tmp_path, **arguments):
    """Trains a small GPT-2; returns the loss of each step."""
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64, n_positions=32, resid_pdrop=0,
                                       embd_pdrop=0, attn_pdrop=0, use_cache=False, bos_token_id=0, eos_token_id=0))
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(0, 64, (16,), generator=generator) for _ in range(4 * _STEPS)]
    losses = []

    class Recorder(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            if "loss" in logs:
                losses.append(float(logs["loss"]))

    settings = TrainingArguments(
        str(tmp_path), max_steps=_STEPS, per_device_train_batch_size=4, learning_rate=1e-2, seed=0, use_cpu=True,
        report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True, dataloader_pin_memory=False, **arguments)
    Trainer(model=model, args=settings, train_dataset=[{"input_ids": row, "labels": row} for row in rows],
            callbacks=[Recorder()]).train()
    assert len(losses) == _STEPS
    return losses


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_the_switch_is_enough(tmp_path, mode):
    want = train(tmp_path)
    got = train(tmp_path, torch_compile=True, torch_compile_backend="stepone", torch_compile_mode=mode)
    assert got == pytest.approx(want, rel=2e-3)
    assert_all_compiled()
    assert {g["mode"] for g in stepone.report()["graphs"]} == {mode or "default"}
    assert {g["role"] for g in stepone.report()["graphs"]} >= {"forward", "backward"}


def test_bfloat16_and_gradient_accumulation(tmp_path):
    arguments = {"bf16": True, "gradient_accumulation_steps": 2}
    want = train(tmp_path, **arguments)
    got = train(tmp_path, torch_compile=True, torch_compile_backend="stepone", **arguments)
    assert got == pytest.approx(want, rel=3e-2)
    assert_all_compiled()
