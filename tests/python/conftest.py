"""Every test runs against the user's own local server, in a state directory that lasts for the test session."""

import os
import shutil
import signal
import socket
import struct
import tempfile

# Before anything reads the environment: no setting of the developer's own reaches a test.
for _name in [name for name in os.environ if name.startswith("STEPONE_") and name != "STEPONE_TEST_SEED"]:
    del os.environ[_name]
# Short, because a unix socket's path may have 107 bytes at most.
os.environ["STEPONE_HOME"] = tempfile.mkdtemp(prefix="stepone-test-", dir="/tmp")

import pytest  # noqa: E402
import torch  # noqa: E402


def pytest_unconfigure(config):
    _stop_local_server()
    shutil.rmtree(os.environ["STEPONE_HOME"], ignore_errors=True)


def _stop_local_server():
    """The user's own server outlives its clients on purpose; that of the tests has no further use."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(os.environ["STEPONE_HOME"] + "/server.sock")
        except OSError:
            return
        process, _, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    os.kill(process, signal.SIGTERM)


@pytest.fixture(autouse=True)
def fresh_process_state():
    """No compiled graph, counter or given warning of another test."""
    from stepone import records

    torch._dynamo.reset()
    records.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def private_folder():
    """A folder with a short name that only this user may enter."""
    folder = tempfile.mkdtemp(prefix="stepone-", dir="/tmp")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
