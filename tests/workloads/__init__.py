"""The nine training workloads that tests and benchmarks share. All are built from configurations; nothing is downloaded.

    workload = workloads.get("gpt2")
    model = workload.build(seed=0, dropout=False)
    batch = workload.make_batch(seed=0)
    loss = workload.loss(model, batch)
"""

import os

# The models come from configurations; a look-up on the network would only cost time.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from workloads.base import Workload, sgd_step  # noqa: E402
from workloads.mlp import MLP  # noqa: E402
from workloads.text import BERT, GPT2, LLAMA, T5  # noqa: E402
from workloads.vision import CONVNEXT, RESNET, VIT, WHISPER  # noqa: E402

ALL = {workload.name: workload for workload in (MLP, GPT2, BERT, LLAMA, T5, VIT, RESNET, CONVNEXT, WHISPER)}


def get(name: str) -> Workload:
    """The workload of that name; ValueError lists the known ones."""
    if name not in ALL:
        raise ValueError(f"no workload {name!r}; there are: {', '.join(ALL)}")
    return ALL[name]


__all__ = ["ALL", "Workload", "get", "sgd_step"]
