"""What a workload is."""

import dataclasses
from collections.abc import Callable, Mapping

import torch

Batch = Mapping[str, torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model, its batches and its loss. Equal seeds give equal weights and batches."""

    name: str
    _make_model: Callable[[bool], torch.nn.Module]      # argument: dropout at the rates that the model's kind uses
    _make_batch: Callable[[torch.Generator], Batch]
    _loss: Callable[[torch.nn.Module, Batch], torch.Tensor]
    has_dropout: bool = False

    def build(self, seed: int = 0, dropout: bool = True, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
        """A model in training mode. Does not touch the state of the default generator."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = self._make_model(dropout)
        return model.to(dtype).train()

    def make_batch(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> Batch:
        """Inputs by name; floating-point ones in `dtype`."""
        batch = self._make_batch(torch.Generator().manual_seed(seed))
        return {name: value.to(dtype) if value.is_floating_point() else value for name, value in batch.items()}

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return self._loss(model, batch)


def sgd_step(workload: Workload, model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    """One training step; returns the loss."""
    optimizer.zero_grad(set_to_none=True)
    loss = workload.loss(model, batch)
    loss.backward()
    optimizer.step()
    return loss.item()


def tokens(generator: torch.Generator, rows: int, length: int, vocabulary: int) -> torch.Tensor:
    return torch.randint(3, vocabulary, (rows, length), generator=generator)


def model_loss(model: torch.nn.Module, batch: Batch) -> torch.Tensor:
    """For models that compute their loss themselves."""
    return model(**batch).loss
