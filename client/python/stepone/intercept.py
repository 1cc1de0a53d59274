"""STEPONE_INTERCEPT: programs that ask torch.compile for another backend get this one, without a change of their code.

torch calls `hf.install` when it is imported, which leads here if the variable names a backend. Modes and options of that
backend are mapped; a call with one that has no counterpart is left to the backend that it asked for, with a warning that
names it.
"""

import functools
import logging

from stepone.config import MODES

log = logging.getLogger("stepone")

# Options of Inductor that say how hard to work: what they come to as one of the four modes.
_AUTOTUNE = ("max_autotune", "max_autotune_pointwise", "max_autotune_gemm")
_CUDAGRAPHS = "triton.cudagraphs"
# Options that mean the same to us under this name.
_SAME = {"fallback_random": "fallback_random", "deterministic": "deterministic"}
# For torch.compile itself, whoever the backend is.
_PASSED_ON = frozenset(("guard_filter_fn",))


class NoCounterpart(Exception):
    """A mode or option of the other backend that can't be mapped; the text names it."""


def install(torch, backends: frozenset[str]) -> None:
    """Wraps torch.compile, so that calls for one of `backends` come here."""
    original = torch.compile

    @functools.wraps(original)
    def compile(model=None, *, backend="inductor", mode=None, options=None, **others):
        if backend in backends:
            try:
                mode, options = translate(backend, mode, options)
                backend = "stepone"
            except NoCounterpart as error:
                log.warning("stepone: a call of torch.compile is left to %s: %s", backend, error)
        return original(model, backend=backend, mode=mode, options=options, **others)

    torch.compile = compile


def translate(backend: str, mode: str | None, options: dict | None) -> tuple[str | None, dict | None]:
    """Mode and options for this backend of a call that asked for `backend`. Raises NoCounterpart."""
    if mode is not None and mode not in MODES:
        raise NoCounterpart(f"mode {mode!r} has no counterpart")
    if backend == "cudagraphs" and mode in (None, "default") and not options:
        return "reduce-overhead", None   # replaying is all that it is asked for
    if not options:
        return mode, options
    mapped, wishes = {}, set()
    for name, value in options.items():
        plain = name.replace("-", "_")
        if name in _PASSED_ON:
            mapped[name] = value
        elif plain in _SAME and backend == "inductor":
            mapped[_SAME[plain]] = value
        elif (plain in _AUTOTUNE or plain == _CUDAGRAPHS) and backend == "inductor":
            if value:
                wishes.add("replay" if plain == _CUDAGRAPHS else "tune")
        else:
            raise NoCounterpart(f"option {name!r} has no counterpart")
    if wishes:
        mapped["mode"] = {("replay",): "reduce-overhead", ("tune",): "max-autotune-no-cudagraphs",
                          ("replay", "tune"): "max-autotune"}[tuple(sorted(wishes))]
    return mode, mapped or None
