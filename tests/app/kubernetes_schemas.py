"""JSON schemas for kubeconform, from the OpenAPI definitions in the module `k8s.io/kubectl`, a dependency of Helm.

kubeconform's own schemas are not in a package registry. Each schema is one file without references to
others. Unknown properties are errors. Definitions that the module lacks are below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
STRING, STRINGS = {"type": "string"}, {"type": "array", "items": {"type": "string"}}


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _kind(kind: str, group: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "properties": {"apiVersion": STRING, "kind": STRING, "metadata": _ref(f"{META}.ObjectMeta"), "spec": spec},
        "required": ["apiVersion", "kind", "metadata", "spec"],
        "x-kubernetes-group-version-kind": [{"group": group, "kind": kind, "version": "v1"}],
    }


RELABELING = {
    "properties": {
        **dict.fromkeys(("action", "regex", "replacement", "separator", "targetLabel"), STRING),
        "modulus": {"type": "integer"},
        "sourceLabels": STRINGS,
    },
}
POD_MONITOR = {
    "properties": {
        "selector": _ref(f"{META}.LabelSelector"),
        "jobLabel": STRING,
        "podTargetLabels": STRINGS,
        "namespaceSelector": {"properties": {"any": {"type": "boolean"}, "matchNames": STRINGS}},
        "podMetricsEndpoints": {
            "type": "array",
            "items": {
                "properties": {
                    **dict.fromkeys(("port", "path", "scheme", "interval", "scrapeTimeout"), STRING),
                    "honorLabels": {"type": "boolean"},
                    "relabelings": {"type": "array", "items": RELABELING},
                    "metricRelabelings": {"type": "array", "items": RELABELING},
                }
            },
        },
    },
    "required": ["selector"],
}
"""Of the Prometheus operator: the properties that this chart may need."""
DISRUPTION_BUDGET = {
    "properties": {
        "minAvailable": _ref(INT_OR_STRING),
        "maxUnavailable": _ref(INT_OR_STRING),
        "selector": _ref(f"{META}.LabelSelector"),
        "unhealthyPodEvictionPolicy": {"enum": ["IfHealthyBudget", "AlwaysAllow"]},
    }
}
ADDED = {
    "podmonitor": _kind("PodMonitor", "monitoring.coreos.com", POD_MONITOR),
    "poddisruptionbudget": _kind("PodDisruptionBudget", "policy", DISRUPTION_BUDGET),
}


def write_schemas(openapi: Path, folder: Path) -> None:
    """Write the schema of every kind in the version `v1`, named as kubeconform expects.

    `openapi` is the directory with the documents of the API groups.
    """
    definitions: dict[str, Any] = {}
    for group in ("api", "apis/apps"):
        definitions |= json.loads((openapi / group / "v1.json").read_text())["components"]["schemas"]
    definitions = {name: _strict(definition) for name, definition in (definitions | ADDED).items()}
    for name, definition in definitions.items():
        for kind in definition.get("x-kubernetes-group-version-kind", ()):
            if kind["version"] == "v1":
                group = kind["group"].partition(".")[0]
                file = "-".join(word for word in (kind["kind"], group, "v1") if word).lower()
                used = {each: definitions[each] for each in _closure(name, definitions)}
                (folder / f"{file}.json").write_text(json.dumps({**_ref(name), "components": {"schemas": used}}))


def _strict(schema: Any) -> Any:
    """The schema with unknown properties refused, wherever properties are declared."""
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: _strict(value) for name, value in schema.items()}
    if "properties" in schema:
        copy["properties"] = {name: _strict(value) for name, value in schema["properties"].items()}
        copy["type"] = "object"
        copy.setdefault("additionalProperties", False)
    if "enum" in schema:
        copy["enum"] = list(dict.fromkeys(schema["enum"]))  # some values are there twice: kubeconform rejects that
    return copy


def _closure(name: str, definitions: dict[str, Any]) -> Iterator[str]:
    """The definition and all that it refers to."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each not in seen:
            seen.add(each)
            yield each
            waiting += re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(definitions[each]))
