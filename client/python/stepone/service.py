"""Connections to compile services, one for each endpoint and tenant of the process."""

import functools
import threading

import torch  # noqa: F401  (the native module needs it loaded)

from stepone import _native
from stepone.config import Settings

# Longest wait for the first healthy connection, unless STEPONE_CONNECT_TIMEOUT_MS says otherwise. A service that is not
# there costs this much once; after that the client's circuit breaker answers for it.
_CONNECT_TIMEOUT_MS = 2000

# A look-up is answered from memory or disk; a service that needs longer is overloaded, and tracing is the better use of
# the time.
_LOOKUP_TIMEOUT_S = 2.0


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

    def find_bundle(self, trace: bytes, settings: Settings):
        """The bundle of a captured graph, or None. Asks no service that was silent when it was last waited for."""
        with self._lock:
            if not self._is_patient:
                return None
        try:
            return self.client.find_bundle(trace, timeout_s=_LOOKUP_TIMEOUT_S, **request_options(settings))
        except _native.StepOneError as error:
            if error.code == "DEADLINE_EXCEEDED":
                with self._lock:
                    self._is_patient = False
            raise


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


def connect_early() -> None:
    """Begins to connect to the service that the environment names, if it names one, so that its answer to the first
    look-up is not waited for twice. The user's own server is started only when something is to be compiled."""
    try:
        configured = _native.Config.from_env().endpoint
    except ValueError:
        return   # said again, and loudly, by the first request
    if configured:
        connect(None, None).client.connect()


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
