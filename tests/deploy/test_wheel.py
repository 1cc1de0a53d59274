"""What `pip install .` installs works where it lies, and knows nothing of the tree that it was built in.

The wheel's files are put together from the finished build by the rules that the wheel itself is filled with (cmake's
install rules, `wheel.packages`, the build back end's own metadata), so nothing is compiled for this test.
"""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib

import pytest
from scikit_build_core import build as back_end

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROGRAMS = {"stepone-server", "stepone-worker", "stepone-opt"}

# A trainer that imports nothing of ours. Prints what the test compares.
TRAINER = """
import json, os, socket, struct, sys
import torch

torch.manual_seed(0)
torch.set_num_threads(1)
eager = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
model.load_state_dict(eager.state_dict())
x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))


def train(step, parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    losses = []
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(step(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


losses = train(torch.compile(model, backend="stepone"), model.parameters())
package = sys.modules["stepone"]
with socket.socket(socket.AF_UNIX) as probe:
    probe.connect(os.environ["STEPONE_HOME"] + "/server.sock")
    server, _, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
workers = set()
for task in os.listdir(f"/proc/{server}/task"):
    workers |= set(open(f"/proc/{server}/task/{task}/children").read().split())
print(json.dumps({
    "package": package.__file__, "native": sys.modules["stepone._native"].__file__, "losses": losses,
    "eager": train(eager, eager.parameters()), "counters": package.counters(), "server": server,
    "programs": sorted({os.readlink(f"/proc/{process}/exe") for process in [server, *workers]}),
}))
"""


def build_folder() -> pathlib.Path:
    """Of the package that the tests run with: the module in it is a link into the build."""
    spec = importlib.util.find_spec("stepone")
    assert spec, "the package stepone is not installed: make build"
    (module,) = pathlib.Path(spec.submodule_search_locations[0]).glob("_native*.so")
    for folder in module.resolve().parents:
        if (folder / "CMakeCache.txt").exists():
            return folder
    pytest.skip("the package that is installed is a wheel already")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> pathlib.Path:
    """A folder as site-packages has it after the installation of the wheel."""
    site = tmp_path_factory.mktemp("site")
    install = ["cmake", "--install", build_folder(), "--prefix", site]
    for component in PROJECT["tool"]["scikit-build"]["install"]["components"]:
        subprocess.run([*install, "--component", component], check=True, stdout=subprocess.DEVNULL)
    for package in PROJECT["tool"]["scikit-build"]["wheel"]["packages"]:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, site / pathlib.Path(package).name, dirs_exist_ok=True, ignore=ignored)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        back_end.prepare_metadata_for_build_wheel(str(site))
    return site


def binaries(site: pathlib.Path) -> list[pathlib.Path]:
    return [path for path in sorted((site / "stepone").rglob("*")) if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]


def test_the_wheel_holds_module_and_programs(site):
    names = {path.name for path in binaries(site)}
    assert {name for name in names if not name.startswith("_native.")} == PROGRAMS
    assert len(names) == len(PROGRAMS) + 1
    assert all(os.access(site / "stepone/bin" / name, os.X_OK) for name in PROGRAMS)
    assert not [path for path in (site / "stepone").rglob("*") if path.is_symlink()]


def test_its_metadata_registers_the_backend(site):
    (found,) = importlib.metadata.distributions(name="stepone", path=[str(site)])
    assert found.version == PROJECT["project"]["version"]
    assert {(entry.group, entry.name, entry.value) for entry in found.entry_points} == {
        ("torch_dynamo_backends", "stepone", "stepone.backend:stepone_backend"),
        ("torch.backends", "stepone", "stepone.hf:install"),
    }
    assert found.requires[0] == PROJECT["project"]["dependencies"][0]


def test_libraries_are_found_relative_to_the_package(site):
    for path in binaries(site):
        dynamic = subprocess.run(["readelf", "-d", path], capture_output=True, text=True, check=True).stdout
        folders = [folder for found in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic) for folder in found.split(":")]
        expected = ["$ORIGIN/../torch/lib"] if path.name.startswith("_native.") else []
        assert folders == expected, path.name


def test_no_binary_names_the_tree_that_it_was_built_in(site):
    for path in binaries(site):
        content = path.read_bytes()
        at = content.find(str(ROOT).encode() + b"/")
        assert at < 0, f"{path.name}: {content[at : at + 120].split(bytes(1))[0].decode()}"


def test_a_trainer_uses_the_server_and_the_worker_of_the_package(site, tmp_path):
    home = tempfile.mkdtemp(prefix="stepone-", dir="/tmp")  # short: a socket's path lies in it
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STEPONE_")}
    environment = {**clean, "PYTHONPATH": str(site), "STEPONE_HOME": home}
    try:
        result = subprocess.run(
            [sys.executable, "-c", TRAINER], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert result.returncode == 0, result.stderr
        said = json.loads(result.stdout.splitlines()[-1])
        os.kill(said["server"], signal.SIGTERM)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    assert said["package"] == str(site / "stepone/__init__.py")
    assert pathlib.Path(said["native"]).parent == site / "stepone"
    assert said["programs"] == [str(site / "stepone/bin/stepone-server"), str(site / "stepone/bin/stepone-worker")]
    assert said["counters"]["graphs"] == 2
    assert said["counters"]["eager_calls"] == 0
    assert said["counters"]["kernel_launches"] >= 3 * 2
    assert said["losses"] == pytest.approx(said["eager"], rel=1e-5)
