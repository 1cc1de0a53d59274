"""stepone: fused training kernels from a compilation service.

    torch.compile(model, backend="stepone")
    TrainingArguments(..., torch_compile_backend="stepone")

Nothing has to be imported: installing the package registers the backend. This module is for looking at what happened:
`stepone.report()`, `stepone.counters()`, `stepone.explain()`.

Importing it is cheap on purpose (torch does so when it starts, through the entry point in `hf.py`): everything else is
loaded when it is first used.
"""

import importlib

__version__ = "0.1.0"

_LAZY = {
    "report": "stepone.records",
    "counters": "stepone.records",
    "explain": "stepone.backend",
    "stepone_backend": "stepone.backend",
}

__all__ = ["__version__", *_LAZY]


def __getattr__(name):
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
