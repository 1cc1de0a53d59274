"""All settings of the Python client, and the only place in it that reads the environment.

Where the service is, whom to trust and where files live is read by the C++ client (`_native.Config.from_env`), so that
C++ trainers obey the same variables; README.md lists all of them.
"""

import dataclasses
import os
import pathlib

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How graphs are compiled and awaited. Hashable: equal settings share one connection."""

    mode: str = "default"
    backend: str = "stepone"            # who compiles, on the server
    endpoint: str | None = None         # None: STEPONE_ENDPOINT, or the user's local server
    tenant: str | None = None           # None: STEPONE_TENANT
    wait_s: float = 60.0                # longest that one step waits for one graph
    max_bindings: int = 16              # concrete shapes per graph with symbolic sizes
    deterministic: bool | None = None   # None: torch.are_deterministic_algorithms_enabled()
    fallback_random: bool = False       # eager's random numbers, bit for bit
    disable_fusion: bool = False        # one kernel per op, for finding faults
    bundles: bool = True                # ask by the captured graph first, and skip AOTAutograd on a hit
    dump_dir: str = ""                  # where to write each graph and plan
    verbose: bool = False               # one line per graph on the logger "stepone"

    @staticmethod
    def from_env() -> "Settings":
        """Settings from STEPONE_* variables; ValueError for one that does not parse."""
        return Settings(
            wait_s=_number("STEPONE_WAIT", Settings.wait_s),
            max_bindings=int(_number("STEPONE_MAX_BINDINGS", Settings.max_bindings)),
            dump_dir=os.environ.get("STEPONE_DUMP_DIR", ""),
            bundles=_flag("STEPONE_BUNDLES", Settings.bundles),
            verbose=_flag("STEPONE_VERBOSE"),
        )

    def with_options(self, mode: str | None, options: dict | None) -> "Settings":
        """These settings changed by what torch.compile was given; ValueError lists what is known."""
        changes = dict(options or {})
        unknown = sorted(set(changes) - _OPTION_TYPES.keys())
        if unknown:
            raise ValueError(f"stepone: unknown option {', '.join(map(repr, unknown))}; "
                             f"known options: {', '.join(sorted(_OPTION_TYPES))}")
        for name, value in changes.items():
            changes[name] = _convert(name, value)
        if mode is not None:
            changes["mode"] = mode
        settings = dataclasses.replace(self, **changes)
        if settings.mode not in MODES:
            raise ValueError(f"stepone: unknown mode {settings.mode!r}; known modes: {', '.join(MODES)}")
        return settings


def intercepted_backends() -> frozenset[str]:
    """Names of other backends whose programs are to come here (STEPONE_INTERCEPT, separated by commas)."""
    names = (name.strip() for name in os.environ.get("STEPONE_INTERCEPT", "").split(","))
    return frozenset(name for name in names if name and name != "stepone")


# What `options=` of torch.compile may hold.
_OPTION_TYPES = {
    "mode": str, "backend": str, "endpoint": str, "tenant": str, "wait_s": float, "max_bindings": int,
    "deterministic": bool, "fallback_random": bool, "disable_fusion": bool, "bundles": bool,
    "dump_dir": str, "verbose": bool,
}


def _convert(name, value):
    kind = _OPTION_TYPES[name]
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind is str and isinstance(value, pathlib.Path):
        return str(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ValueError(f"stepone: option {name!r} takes a {kind.__name__}, not {value!r}")
    return value


def _number(variable, default):
    text = os.environ.get(variable, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{variable}={text!r} is not a number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{variable}={text!r} must be zero or more, and finite")
    return value


def _flag(variable, default=False):
    text = os.environ.get(variable, "").lower()
    if not text:
        return default
    if text in ("0", "false", "no", "off"):
        return False
    if text in ("1", "true", "yes", "on"):
        return True
    raise ValueError(f"{variable}={text!r} is neither true nor false")
