"""What the tests of deploy/ share: the server that was built, and one that runs."""

import importlib.util
import pathlib
import socket
import subprocess
import time
import urllib.request

import pytest


@pytest.fixture(scope="session")
def server() -> pathlib.Path:
    package = importlib.util.find_spec("stepone")
    assert package, "the package stepone is not installed: make build"
    return pathlib.Path(package.submodule_search_locations[0]) / "bin/stepone-server"


@pytest.fixture(scope="session")
def scraped(server, tmp_path_factory) -> tuple[str, int]:
    """The metrics of a server that has just started, as Prometheus reads them, and its exit status on SIGTERM."""
    folder = tmp_path_factory.mktemp("server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % probe.getsockname()[1]
    command = [server, "--listen", f"unix:{folder}/s", "--state-dir", folder / "state", "--workers", "1"]
    process = subprocess.Popen([*command, "--metrics-listen", address])
    try:
        while not (folder / "state/endpoints").exists():
            assert process.poll() is None
            time.sleep(0.02)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        text = opener.open(f"http://{address}/metrics", timeout=60).read().decode()
    finally:
        process.terminate()
        status = process.wait(60)
    return text, status
