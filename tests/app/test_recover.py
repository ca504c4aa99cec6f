"""`ottla config recover`: a node with settings that lock all clients out serves again."""

from __future__ import annotations

import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ottla.app.clock import SystemClock
from ottla.cli.ignored_settings import write_ignored
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.ignored_settings import IGNORED_FILE, read_ignored
from ottla.common.errors import OperatorError
from ottla.metadata.image import EMPTY_IMAGE, quota_entity
from ottla.metrics.registry import MetricsRegistry
from ottla.quota.windows import Windows
from ottla.server.requests.client_quotas import ClientQuotas

OVERRIDES = "max.connections.per.ip.overrides"


def recover(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ottla", "config", "recover", "--data-dir", str(data_dir), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def alter(address: str, operation: ConfigOperation, value: str | None) -> None:
    with Cluster(address) as cluster:
        cluster.configs.alter(ResourceType.BROKER, "", [(OVERRIDES, operation, value)])


def test_locked_out_cluster_is_recovered_on_the_host(ottla):
    data_dir = ottla.folder / "data"
    started = ottla.start()
    alter(started.ready["bootstrap_servers"], ConfigOperation.SET, "127.0.0.1:0")
    assert started.stop() == 0
    locked = ottla.start()
    with pytest.raises((OSError, struct.error)):
        locked.api_versions()
    assert locked.stop() == 0
    done = recover(data_dir, "--ignore", OVERRIDES, "--ignore", "quotas")
    assert done.stdout.startswith(f"Ignored from the next start: {OVERRIDES}, quotas.\n"), done.stderr
    open_again = ottla.start()
    assert f"RECOVERY: ignoring the dynamic settings {OVERRIDES}, quotas" in open_again.log.read_text()
    alter(open_again.ready["bootstrap_servers"], ConfigOperation.DELETE, None)
    assert open_again.stop() == 0
    assert recover(data_dir, "--end").stdout == "Ignored from the next start: nothing.\n"
    healthy = ottla.start()
    assert healthy.api_versions()
    assert "RECOVERY" not in healthy.log.read_text()
    assert healthy.stop() == 0


def test_recover_rejects_static_settings(tmp_path: Path) -> None:
    refused = recover(tmp_path, "--ignore", "all")
    assert (refused.returncode, "is not a data directory" in refused.stderr) == (2, True)
    (tmp_path / "meta.properties").touch()
    for name in ("listeners", "no.such.setting", ""):
        with pytest.raises(OperatorError, match="not a dynamic setting"):
            write_ignored(str(tmp_path), [name])
    (tmp_path / IGNORED_FILE).write_text("node.id\n")
    with pytest.raises(OperatorError, match="not a dynamic setting"):
        read_ignored([str(tmp_path)])


@pytest.mark.parametrize(
    ("ignored", "rate", "of_listener", "quotas"),
    [
        ((), 5, {"PLAINTEXT": 7}, False),
        (("max.connection.creation.rate",), 2**31 - 1, {}, False),
        (("listener.name.plaintext.max.connection.creation.rate",), 5, {}, False),
        (("quotas",), 5, {"PLAINTEXT": 7}, True),
        (("all",), 2**31 - 1, {}, True),
    ],
)
def test_ignored_names_leave_no_dynamic_value(ignored, rate, of_listener, quotas) -> None:
    config, _ = BrokerConfig.parse({})
    name = "max.connection.creation.rate"
    dynamic = {name: "5"}, {f"listener.name.plaintext.{name}": "7"}
    later = config.ignoring(frozenset(ignored)).with_dynamic(*dynamic).with_dynamic(*dynamic)
    assert (later.get_int(name), later.connection_rates, later.ignores_quotas) == (rate, of_listener, quotas)


def test_ignored_quotas_limit_no_client() -> None:
    image = replace(EMPTY_IMAGE, client_quotas={quota_entity([("user", None)]): {"producer_byte_rate": 1.0}})
    config, _ = BrokerConfig.parse({})
    for ignored, limited in ((), True), (("quotas",), False):
        quotas = ClientQuotas(Windows(11, 1), SystemClock(), MetricsRegistry())
        quotas.use_config(config.ignoring(frozenset(ignored)))
        quotas.use(image)
        assert quotas.any is limited
