"""What is under deploy/ parses, agrees with itself, and is accepted by the server that was built."""

import configparser
import os
import pathlib
import re
import subprocess
import tomllib

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CONFIGS = sorted((DEPLOY / "config").glob("*.toml"))
MANIFESTS = [
    document for path in sorted((DEPLOY / "k8s").glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())
]


def print_config(server: pathlib.Path, config: pathlib.Path, **environment: str) -> subprocess.CompletedProcess:
    command = [server, "--config", config, "--print-config"]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STEPONE_")}
    return subprocess.run(command, env={**clean, **environment}, capture_output=True, text=True, timeout=60)


def manifest(kind: str) -> dict:
    (found,) = [document for document in MANIFESTS if document["kind"] == kind]
    return found


def port_of(address: str) -> int:
    return int(address.rsplit(":", 1)[1])


def prod() -> dict:
    return tomllib.loads((DEPLOY / "config/prod.toml").read_text())


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_the_server_accepts_each_configuration(server, config):
    result = print_config(server, config)
    assert result.returncode == 0, result.stderr
    effective = tomllib.loads(result.stdout)
    for name, value in tomllib.loads(config.read_text()).items():
        if name == "workers" and value == 0:
            assert effective[name] >= 1
        else:
            assert effective[name] == value, name


def test_what_print_config_prints_is_a_configuration(server, tmp_path):
    first = print_config(server, DEPLOY / "config/prod.toml").stdout
    (tmp_path / "printed.toml").write_text(first)
    second = print_config(server, tmp_path / "printed.toml")
    assert second.returncode == 0, second.stderr
    assert second.stdout == first


def test_the_environment_beats_the_file(server):
    result = print_config(server, DEPLOY / "config/prod.toml", STEPONE_SERVER_WORKERS="3")
    assert tomllib.loads(result.stdout)["workers"] == 3


def test_an_unknown_option_is_refused_by_name(server, tmp_path):
    (tmp_path / "bad.toml").write_text('listen = ["127.0.0.1:7461"]\nworkerz = 4\n')
    result = print_config(server, tmp_path / "bad.toml")
    assert result.returncode != 0
    assert "workerz" in result.stderr


def test_the_probes_of_the_manifests_are_answered(scraped):
    """A running server serves its counters where Prometheus and the liveness probe look, and ends well on SIGTERM."""
    text, status = scraped
    for name in ("stepone_queue_depth 0", 'stepone_worker_slots{state="idle"} 1', "stepone_misses_total 0"):
        assert name in text
    assert status == 0


def test_manifests_are_complete_and_carry_the_production_configuration():
    assert sorted(document["kind"] for document in MANIFESTS) == ["ConfigMap", "NetworkPolicy", "Service", "StatefulSet"]
    for document in MANIFESTS:
        assert document["apiVersion"] and document["metadata"]["name"] == "stepone", document["kind"]
    assert manifest("ConfigMap")["data"]["server.toml"] == (DEPLOY / "config/prod.toml").read_text()


def test_ports_agree_everywhere():
    ports = [port_of(prod()["listen"][0]), port_of(prod()["metrics-listen"])]
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["stepone"]
    exposed = re.search(r"^EXPOSE (.*)$", (DEPLOY / "server.Dockerfile").read_text(), re.MULTILINE).group(1)
    assert [port["containerPort"] for port in container["ports"]] == ports
    assert [port["port"] for port in manifest("Service")["spec"]["ports"]] == ports
    assert [rule["ports"][0]["port"] for rule in manifest("NetworkPolicy")["spec"]["ingress"]] == ports
    assert [port_of(mapping) for mapping in compose["ports"]] == ports
    assert [int(port) for port in exposed.split()] == ports


def test_selectors_volumes_and_files_meet():
    stateful = manifest("StatefulSet")["spec"]
    labels = stateful["template"]["metadata"]["labels"]
    assert stateful["selector"]["matchLabels"] == labels == manifest("Service")["spec"]["selector"]
    pod = stateful["template"]["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]} | {
        claim["metadata"]["name"] for claim in stateful["volumeClaimTemplates"]
    }
    mounts = pod["containers"][0]["volumeMounts"]
    assert {mount["name"] for mount in mounts} == volumes
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["stepone"]
    mounted = [mount["mountPath"] for mount in mounts] + [volume.split(":")[1] for volume in compose["volumes"]]
    for name in ("state-dir", "tls-cert", "tls-key", "token-file"):
        path = prod()[name]
        assert sum(path == mount or path.startswith(f"{mount}/") for mount in mounted) == 2, name


def test_everybody_waits_longer_than_the_server_drains():
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str
    unit.read(DEPLOY / "systemd/stepone-server.service")
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["stepone"]
    drain = prod()["drain-seconds"]
    assert int(unit["Service"]["TimeoutStopSec"]) > drain
    assert int(compose["stop_grace_period"].removesuffix("s")) > drain
    assert manifest("StatefulSet")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > drain


def test_the_image_copies_what_exists():
    text = (DEPLOY / "server.Dockerfile").read_text()
    for source in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for path in source.split():
            assert (ROOT / path).exists(), path


@pytest.mark.parametrize("section", ["build", "runtime"])
def test_package_lists_are_sorted_and_well_formed(section):
    listing = subprocess.run(["bash", DEPLOY / "packages.sh", section], capture_output=True, text=True, check=True)
    names = listing.stdout.split()
    assert len(names) > 10 and names == sorted(set(names))
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name) for name in names)


def test_python_packages_are_pinned():
    lines = [line for line in (DEPLOY / "requirements.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][0-9a-z.]*", line) for line in lines), lines
    assert [line.lower() for line in lines] == sorted(line.lower() for line in lines)
