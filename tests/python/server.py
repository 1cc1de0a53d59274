"""A stepone-server of a test's own, on a unix socket in a folder that only this user may enter."""

import pathlib
import signal
import socket
import subprocess
import time

import stepone

BINARY = pathlib.Path(stepone.__file__).parent / "bin" / "stepone-server"


def address(folder) -> str:
    return f"unix:{folder}/s"


class Server:
    """Runs while the context is open. `folder`: private, and short (a socket's path may have 107 bytes)."""

    def __init__(self, folder, *options):
        self.endpoint = address(folder)
        self.log = pathlib.Path(folder) / "log"
        self._command = [BINARY, "--listen", self.endpoint, "--state-dir", f"{folder}/state", *options]
        self._process = None

    def __enter__(self):
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        while not self._accepts():
            if self._process.poll() is not None:
                raise RuntimeError(f"stepone-server ended with {self._process.returncode}: {self.log.read_text()}")
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def kill(self):
        self._process.kill()
        self._process.wait()

    def _accepts(self):
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(self.endpoint.removeprefix("unix:"))
            except OSError:
                return False
        return True
