"""The Helm chart gives what the plain manifests hold, and the dashboard asks only for what the server exports."""

import json
import os
import pathlib
import re
import subprocess
import tomllib

import pytest
import yaml
from helm_templates import render, render_text

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/stepone"
DASHBOARDS = sorted((DEPLOY / "dashboards").glob("*.json"))


@pytest.fixture(scope="module")
def exported(scraped) -> dict[str, set[str]]:
    """Names of the series of a server that has just started, each with the names of its labels."""
    text, _ = scraped
    series: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(stepone_\w+)(\{[^}]*\})?", text, re.MULTILINE):
        series.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return series


def rendered(**values) -> dict[str, dict]:
    """Documents of the chart by kind."""
    documents = [document for of_file in render(CHART, "stepone", **values).values() for document in of_file]
    assert len({document["kind"] for document in documents}) == len(documents)
    return {document["kind"]: document for document in documents}


def configuration(documents) -> dict:
    return tomllib.loads(documents["ConfigMap"]["data"]["server.toml"])


def test_the_chart_gives_the_manifests():
    documents = rendered()
    plain = {document["kind"]: document for document in yaml.safe_load_all((DEPLOY / "k8s/stepone.yaml").read_text())}
    # What the chart writes in another way, compared by meaning.
    expected = configuration(plain)
    assert expected.pop("workers") == 0   # the variable decides
    assert configuration(documents) == expected
    for of_kind in (documents, plain):
        of_kind["ConfigMap"].pop("data")
    annotations = documents["StatefulSet"]["spec"]["template"]["metadata"]["annotations"]
    assert re.fullmatch(r"[0-9a-f]{64}", annotations.pop("stepone/config"))
    assert documents == plain


def test_the_server_accepts_the_configuration_of_the_chart(server, tmp_path):
    (tmp_path / "server.toml").write_text(rendered()["ConfigMap"]["data"]["server.toml"])
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STEPONE_")}
    command = [server, "--config", tmp_path / "server.toml", "--print-config"]
    result = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    effective = tomllib.loads(result.stdout)
    for name, value in configuration(rendered()).items():
        assert effective[name] == value, name


def test_values_reach_their_places():
    documents = rendered(
        image="registry.example/stepone:2", workers=8, storage="9Gi", storageClass="fast", drainSeconds=40,
        ports={"grpc": 1, "metrics": 2}, config={"share-kernels": True, "tenants": ["a", "b"]},
    )
    assert configuration(documents)["listen"] == ["0.0.0.0:1"]
    assert configuration(documents)["drain-seconds"] == 40
    assert configuration(documents)["share-kernels"] is True
    assert configuration(documents)["tenants"] == ["a", "b"]
    pod = documents["StatefulSet"]["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 70
    (container,) = pod["containers"]
    assert container["image"] == "registry.example/stepone:2"
    assert container["env"] == [{"name": "STEPONE_SERVER_WORKERS", "value": "8"}]
    assert [port["containerPort"] for port in container["ports"]] == [1, 2]
    (claim,) = documents["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"]["storage"] == "9Gi"


def test_each_value_is_used():
    text = "".join(path.read_text() for path in (CHART / "templates").glob("*.yaml"))
    for name, value in yaml.safe_load((CHART / "values.yaml").read_text()).items():
        paths = [f"{name}.{key}" for key in value] if isinstance(value, dict) and name != "config" else [name]
        for path in paths:
            assert re.search(rf"\.Values\.{re.escape(path)}\b", text), path


@pytest.mark.parametrize("text", ["{{ .Values.missing }}", "{{ nindent 2 }}", "{{ if .Values.a }}", "{{ end }}"])
def test_what_the_renderer_does_not_know_is_an_error(text):
    with pytest.raises((KeyError, SyntaxError)):
        render_text(text, {"Values": {"a": 1}})


def expressions(dashboard) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_the_dashboard_asks_for_what_the_server_exports(path, exported):
    dashboard = json.loads(path.read_text())
    used = set()
    for expression in expressions(dashboard):
        names = re.findall(r"\bstepone_\w+", expression)
        assert names, expression
        for name in names:
            assert name in exported, f"{name} in {expression}"
        labels = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
        labels |= set(re.findall(r'(\w+)=~?"', expression))
        for label in labels - {"instance"}:   # Prometheus adds that one
            assert all(label in exported[name] for name in names), f"{label} in {expression}"
        used |= set(names)
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported}
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in used}
    assert families - shown == set(), "exported, and on no panel"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.name)
def test_panels_have_names_and_do_not_overlap(path):
    panels = json.loads(path.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = set()
    for panel in panels:
        assert panel["title"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not own & cells, panel["title"]
        cells |= own


def test_the_runbook_names_what_the_server_exports(exported):
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported} | exported.keys()
    for name in re.findall(r"`(stepone_\w+)", (DEPLOY / "RUNBOOK.md").read_text()):
        assert name in families, name
