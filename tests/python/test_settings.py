"""Modes, options and environment variables: what is accepted, and that the rest is refused with the known ones."""

import pytest
import torch

from stepone.config import MODES, Settings


@pytest.mark.parametrize("mode", [*MODES, None])
def test_all_modes_are_accepted(mode):
    assert Settings().with_options(mode, None).mode == (mode or "default")


def test_an_unknown_mode_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown mode 'fast'.*default, reduce-overhead, max-autotune, "):
        Settings().with_options("fast", None)


def test_an_unknown_mode_reaches_the_user_of_torch_compile():
    compiled = torch.compile(lambda x: x + 1, backend="stepone", mode="fast")
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="unknown mode 'fast'.*max-autotune"):
        compiled(torch.ones(2))


def test_an_unknown_option_lists_the_known_ones():
    with pytest.raises(ValueError, match="unknown option 'speed'; known options: backend, .*, wait_s"):
        Settings().with_options(None, {"speed": 9})


def test_options_are_checked_and_applied():
    settings = Settings().with_options(None, {"mode": "max-autotune", "wait_s": 3, "deterministic": True})
    assert (settings.mode, settings.wait_s, settings.deterministic) == ("max-autotune", 3.0, True)
    with pytest.raises(ValueError, match="'wait_s' takes a float, not 'long'"):
        Settings().with_options(None, {"wait_s": "long"})
    with pytest.raises(ValueError, match="'max_bindings' takes a int, not True"):
        Settings().with_options(None, {"max_bindings": True})


def test_environment(monkeypatch):
    monkeypatch.setenv("STEPONE_WAIT", "2.5")
    monkeypatch.setenv("STEPONE_VERBOSE", "yes")
    settings = Settings.from_env()
    assert settings.wait_s == 2.5 and settings.verbose
    monkeypatch.setenv("STEPONE_WAIT", "soon")
    with pytest.raises(ValueError, match="STEPONE_WAIT='soon' is not a number"):
        Settings.from_env()
    monkeypatch.setenv("STEPONE_WAIT", "-1")
    with pytest.raises(ValueError, match="STEPONE_WAIT='-1' must be zero or more"):
        Settings.from_env()
    monkeypatch.setenv("STEPONE_WAIT", "1")
    monkeypatch.setenv("STEPONE_VERBOSE", "perhaps")
    with pytest.raises(ValueError, match="STEPONE_VERBOSE='perhaps' is neither true nor false"):
        Settings.from_env()
