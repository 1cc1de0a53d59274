"""accelerate's closed list of backends: open for ours, closed as before for everything else."""

import subprocess
import sys

import pytest


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)


def test_the_name_is_accepted_without_importing_anything():
    done = run("""
import torch, sys
assert not any(name.startswith("accelerate") for name in sys.modules)
assert "stepone.backend" not in sys.modules and "stepone._native" not in sys.modules
from accelerate.utils import DynamoBackend, TorchDynamoPlugin
plugin = TorchDynamoPlugin(backend="stepone")
assert plugin.backend is DynamoBackend("STEPONE") and plugin.to_dict()["backend"] == "stepone"
assert plugin.backend != DynamoBackend.NO and str(plugin.backend) == "STEPONE"
assert "STEPONE" not in DynamoBackend.list()
import copy, pickle
assert pickle.loads(pickle.dumps(plugin.backend)) is plugin.backend and copy.deepcopy(plugin.backend) is plugin.backend
try:
    DynamoBackend("NOSUCH")
except ValueError as error:
    assert "is not a valid DynamoBackend" in str(error)
else:
    raise AssertionError("accepted")
""")
    assert done.returncode == 0, done.stderr


def test_accelerate_imported_before_torch():
    done = run("import accelerate\nfrom accelerate.utils import TorchDynamoPlugin\nTorchDynamoPlugin(backend='stepone')")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name, status", [("stepone", 0), ("nosuch", 2)])
def test_the_launcher_offers_it(name, status):
    done = run(f"""
import torch
from accelerate.commands.launch import launch_command_parser
launch_command_parser().parse_args(["--dynamo_backend", {name!r}, "train.py"])""")
    assert done.returncode == status, done.stderr
    if status:
        assert "invalid choice: 'nosuch'" in done.stderr
