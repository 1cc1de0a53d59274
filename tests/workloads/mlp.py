"""A plain perceptron: 512-1024-512-10."""

import torch
from torch import nn

from workloads.base import Workload

_ROWS = 256


def _model(dropout: bool) -> nn.Module:
    rate = 0.1 if dropout else 0.0
    return nn.Sequential(
        nn.Linear(512, 1024), nn.GELU(), nn.Dropout(rate),
        nn.Linear(1024, 512), nn.ReLU(), nn.LayerNorm(512), nn.Dropout(rate),
        nn.Linear(512, 10))


def _batch(generator):
    return {"x": torch.randn(_ROWS, 512, generator=generator),
            "labels": torch.randint(0, 10, (_ROWS,), generator=generator)}


def _loss(model, batch):
    return nn.functional.cross_entropy(model(batch["x"]), batch["labels"])


MLP = Workload("mlp", _model, _batch, _loss, has_dropout=True)
