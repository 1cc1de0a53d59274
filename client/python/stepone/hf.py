"""What torch runs when it is imported (entry-point group "torch.backends"): makes "stepone" a name that Hugging Face
accelerate accepts, without the user importing anything, and takes over programs for other backends if that is asked for.

accelerate keeps the backends that it passes on to torch.compile in a closed enumeration. `install` runs before anybody
can import accelerate. This file therefore imports nothing but the standard library and the settings, and only leaves an
import hook behind.
"""

import sys
from importlib.machinery import ModuleSpec

from stepone.config import intercepted_backends

_NAME = "STEPONE"


def install() -> None:
    """Patches accelerate now if it is imported already, else when it is; and torch.compile if STEPONE_INTERCEPT is set."""
    backends = intercepted_backends()
    if backends:
        from stepone import intercept

        intercept.install(sys.modules["torch"], backends)
    loaded = [name for name in _PATCHES if name in sys.modules]
    for name in loaded:
        _PATCHES[name](sys.modules[name])
    if len(loaded) < len(_PATCHES) and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds a patched module like everybody else, then wraps its loader."""

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if name not in _PATCHES:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    _run_after(spec.loader, _PATCHES[name])
                return spec
        return None


def _run_after(loader, patch):
    execute = loader.exec_module

    def exec_module(module):
        execute(module)
        patch(module)

    loader.exec_module = exec_module


def _accept_in_enumeration(module):
    backends = module.DynamoBackend

    def missing(cls, value):
        if isinstance(value, str) and value.upper() == _NAME:
            return _member(cls)
        return None

    backends._missing_ = classmethod(missing)


def _member(cls):
    """The pseudo-member; it is no item of the enumeration, so lists of backends stay as they are."""
    known = cls._value2member_map_
    if _NAME not in known:
        member = str.__new__(cls, _NAME)
        member._name_ = member._value_ = _NAME
        known[_NAME] = member
    return known[_NAME]


def _offer_to_launcher(module):
    if _NAME not in module.DYNAMO_BACKENDS:
        module.DYNAMO_BACKENDS.append(_NAME)


_PATCHES = {
    "accelerate.utils.dataclasses": _accept_in_enumeration,
    "accelerate.commands.config.config_utils": _offer_to_launcher,
}
