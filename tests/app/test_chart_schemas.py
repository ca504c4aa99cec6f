"""The manifests of the Helm chart against the schemas of Kubernetes, by kubeconform; its values against their schema.

`make chart` installs Helm and kubeconform, and runs the tests of the chart.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .kubernetes_schemas import write_schemas

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "ottla"
CACHE = ROOT / ".cache" / "kubeconform"
OPENAPI = CACHE / "v3"
"""From the module `k8s.io/kubectl`."""
HELM = shutil.which("helm") or str(ROOT / ".cache" / "helm" / "helm")
KUBECONFORM = shutil.which("kubeconform") or str(CACHE / "kubeconform")
MISSING = [path for path in (HELM, KUBECONFORM, str(OPENAPI)) if not Path(path).exists()]
KINDS = {"ConfigMap", "PodDisruptionBudget", "PodMonitor", "Service", "StatefulSet"}

FEW = {"replicas": 1, "controllers": 1, "antiAffinity": "preferred", "resources": {}}
MANY = {
    "replicas": 5,
    "imagePullSecrets": [{"name": "registry"}],
    "config": {"log.retention.hours": "24"},
    "storage": {"size": "1Ti", "storageClass": "fast"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "logs", "effect": "NoSchedule"}],
    "extraVolumes": [{"name": "keys", "secret": {"secretName": "keys"}}],
    "extraVolumeMounts": [{"name": "keys", "mountPath": "/etc/ottla/keys", "readOnly": True}],
}
MONITORED = {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}

needs_tools = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}: run make chart")


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("schemas")
    write_schemas(OPENAPI, folder)
    return folder


def render(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The manifests of the chart."""
    command = [HELM, "template", "logs", str(CHART), "--namespace", "data", "--values", "-"]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=True)
    return list(yaml.safe_load_all(done.stdout))


def validate(schemas: Path, manifests: list[dict[str, Any]]) -> str:
    """The report of kubeconform, empty if all manifests are valid."""
    location = f"{schemas}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
    done = subprocess.run(
        [KUBECONFORM, "-strict", "-schema-location", location, "-"],
        input=yaml.safe_dump_all(manifests),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == bool(done.stdout), done.stderr
    return done.stdout


@needs_tools
@pytest.mark.parametrize("values", [{}, FEW, MANY | MONITORED], ids=["default", "few", "many"])
def test_manifests_match_the_schemas_of_kubernetes(schemas: Path, values: dict[str, Any]) -> None:
    manifests = render(values)
    assert {each["kind"] for each in manifests} == (KINDS if "podMonitor" in values else KINDS - {"PodMonitor"})
    assert validate(schemas, manifests) == ""


@needs_tools
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_unknown_property_and_wrong_type_are_reported(schemas: Path, kind: str) -> None:
    """A check that accepts everything proves nothing."""
    manifest = next(each for each in render(MONITORED) if each["kind"] == kind)
    assert "additional" in validate(schemas, [{**manifest, "replica": 3}])
    assert "metadata" in validate(schemas, [{**manifest, "metadata": {**manifest["metadata"], "labels": "logs"}}])


def names(values: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[set[str], set[str]]]:
    """Names in an object of values.yaml and in its schema, at each level that the schema closes."""
    if schema.get("additionalProperties") is False:
        yield set(values), set(schema["properties"])
        for name, value in values.items():
            if isinstance(value, dict):
                yield from names(value, schema["properties"].get(name, {}))


def test_schema_of_values_declares_exactly_the_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    pairs = list(names(values, schema))
    assert len(pairs) == 4  # the values, image, storage and podMonitor
    for found, declared in pairs:
        assert found == declared - {"global"}  # of Helm
