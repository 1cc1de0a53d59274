"""Connections to compile services, one for each endpoint and tenant of the process."""

import functools
import threading

import torch  # noqa: F401  (the native module needs it loaded)

from stepone import _native
from stepone.config import Settings

# Longest wait for the first healthy connection, unless STEPONE_CONNECT_TIMEOUT_MS says otherwise. A service that is not
# there costs this much once; after that the client's circuit breaker answers for it.
_CONNECT_TIMEOUT_MS = 2000


class Service:
    """One connection, and how much patience it still deserves. Thread-safe."""

    def __init__(self, client):
        self.client = client
        self._lock = threading.Lock()
        self._is_patient = True

    def wait(self, request, seconds: float) -> bool:
        """Waits until `request` has ended. After one wait that came to nothing no other one waits, until some request
        has been answered: a service that accepts requests and stays silent costs a training one wait, not one a graph.
        """
        with self._lock:
            seconds = seconds if self._is_patient else 0.0
        ended = request.wait(seconds)
        with self._lock:
            self._is_patient = ended
        return ended


@functools.lru_cache(maxsize=None)
def connect(endpoint: str | None, tenant: str | None) -> Service:
    """The process's connection to `endpoint` (None: as configured by the environment). Makes no call yet."""
    config = _native.Config.from_env()
    if endpoint is not None:
        config.endpoint = endpoint
    if tenant is not None:
        config.tenant = tenant
    if config.connect_timeout_ms == _native.Config().connect_timeout_ms:
        config.connect_timeout_ms = _CONNECT_TIMEOUT_MS
    return Service(_native.Client(config))


def request_options(settings: Settings) -> dict:
    """What each request of these settings says beside its graph."""
    deterministic = settings.deterministic
    if deterministic is None:
        deterministic = torch.are_deterministic_algorithms_enabled()
    return {
        "mode": settings.mode,
        "backend": settings.backend,
        "deterministic": deterministic,
        "fallback_random": settings.fallback_random,
        "disable_fusion": settings.disable_fusion,
        "framework_version": torch.__version__.partition("+")[0],
    }
