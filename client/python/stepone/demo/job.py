"""One training run of the demo, in a process of its own: a small GPT-2 on bytes with transformers.Trainer.

    python -m stepone.demo.job --result FILE [--backend stepone] [--steps N]

Writes what it measured to FILE as JSON.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

_CONTEXT = 128
_BATCH = 8


class Clock(TrainerCallback):
    """Time at the end of each step, and the losses that the Trainer logs."""

    def __init__(self):
        self.begin = 0.0
        self.ends = []
        self.losses = []

    def on_train_begin(self, args, state, control, **kwargs):
        self.begin = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def on_log(self, args, state, control, logs=None, **kwargs):
        if logs and "loss" in logs:
            self.losses.append(float(logs["loss"]))


def dataset():
    """Windows of the text that ships with the package, one token a byte."""
    text = pathlib.Path(__file__).with_name("text.txt").read_bytes()
    tokens = torch.tensor(list(text), dtype=torch.long)
    rows = tokens[: len(tokens) // _CONTEXT * _CONTEXT].view(-1, _CONTEXT)
    return [{"input_ids": row, "labels": row} for row in rows]


def model():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=_CONTEXT, n_embd=256, n_layer=4, n_head=4,
                                      use_cache=False, bos_token_id=0, eos_token_id=0, loss_type="ForCausalLM"))


def train(backend, steps):
    clock = Clock()
    compile_arguments = {"torch_compile": True, "torch_compile_backend": backend} if backend else {}
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=_BATCH, learning_rate=1e-3, seed=0, use_cpu=True,
            report_to=[], save_strategy="no", logging_steps=10, disable_tqdm=True, dataloader_pin_memory=False,
            log_level="error", **compile_arguments)
        Trainer(model=model(), args=arguments, train_dataset=dataset(), callbacks=[clock]).train()
    return clock


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--result", required=True)
    options = parser.parse_args()

    clock = train(options.backend, options.steps)
    later = clock.ends[-1] - clock.ends[0]
    result = {
        "first_step_s": clock.ends[0] - clock.begin,
        "steps_per_s": (len(clock.ends) - 1) / later,
        "first_loss": clock.losses[0],
        "final_loss": clock.losses[-1],
    }
    if options.backend == "stepone":
        import stepone

        result["report"] = dict(stepone.report())
        result["table"] = str(stepone.report())
    pathlib.Path(options.result).write_text(json.dumps(result))


if __name__ == "__main__":
    main()
