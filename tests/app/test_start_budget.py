"""Modules and memory of a started broker without clients, against a recorded budget.

A start shall not pay for code that this broker may never use. If it has to load a new module, record that with
`python -m tests.app.start_budget`, and give the reason in the commit.
"""

from __future__ import annotations

import pytest

from ottla.protocol.registry import VERSIONS, ApiKey
from ottla.server.handlers.admin.apis import ADMIN_APIS
from ottla.server.handlers.data.apis import DATA_APIS
from ottla.server.handlers.groups.apis import GROUP_APIS
from ottla.server.handlers.quorum.administration import QUORUM_ADMIN_APIS
from ottla.server.handlers.quorum.apis import QUORUM_APIS
from ottla.server.handlers.share.apis import SHARE_APIS
from ottla.server.handlers.share.partition_apis import SHARE_PARTITION_APIS
from ottla.server.handlers.transactions.apis import TRANSACTION_APIS

from .start_budget import Started, measure, recorded

ABSENT = (
    "cramjam",
    "cryptography",
    "google.protobuf",
    "htpy",
    "opentelemetry",
    "ottla.api",
    "ottla.app.console_process",
    "ottla.cli",
    "ottla.client",
    "ottla.console",
    "ottla.coordinator.group",
    "ottla.coordinator.share",
    "ottla.coordinator.transaction",
    "ottla.net.tls",
    "ottla.pipeline",
    "ottla.protocol.znodes",
    "ottla.quorum.peers",
    "ottla.quorum.service",
    "ottla.replica.fetcher",
    "ottla.replica.segment_repair",
    "ottla.security.contexts",
    "ottla.server.coordination.share_gauges",
    "ottla.server.coordination.share_persister",
    "ottla.server.coordination.share_state",
    "ottla.server.handlers.telemetry",
    "ottla.server.coordination.share_partitions",
    "ottla.server.zookeeper",
    "ottla.share",
    "ottla.storage.compaction.cleaning",
    "ottla.storage.repair.segment_scrub",
    "ottla.telemetry",
    "ottla.zookeeper",
    "starlette",
    "uvicorn",
)
"""Packages and modules of features that a broker with default settings and without clients does not use."""
SOURCE_TOLERANCE = 0.05
"""Room for changes of modules that are loaded anyway."""
BLOCKS_TOLERANCE = 0.02
"""Counts of the same source differ by less than a thousandth."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Started:
    """One start for all tests of this file."""
    return measure(tmp_path_factory.mktemp("start"))


def test_start_loads_no_module_beyond_the_budget(started: Started) -> None:
    added = started.sizes.keys() - recorded().sizes.keys()
    assert not added, f"a start loads new modules: {', '.join(sorted(added))}"


def test_start_loads_no_feature_that_is_not_in_use(started: Started) -> None:
    loaded = [name for name in started.modules if any(f"{name}.".startswith(f"{each}.") for each in ABSENT)]
    assert not loaded


def test_start_loads_no_handler_and_no_message_of_an_api(started: Started) -> None:
    tables = (
        ADMIN_APIS,
        DATA_APIS,
        GROUP_APIS,
        QUORUM_ADMIN_APIS,
        QUORUM_APIS,
        SHARE_APIS,
        SHARE_PARTITION_APIS,
        TRANSACTION_APIS,
    )
    handlers = {row.module for table in tables for row in table}
    messages = {f"ottla.protocol.messages.{ApiKey(key).name.lower()}" for key in VERSIONS}
    assert not (handlers | messages) & set(started.modules)


def test_start_loads_no_more_code_than_recorded(started: Started) -> None:
    before = recorded().sizes
    grown = {name: size - before.get(name, 0) for name, size in started.sizes.items() if size > before.get(name, 0)}
    largest = ", ".join(f"{name} +{grown[name]}" for name in sorted(grown, key=lambda name: -grown[name])[:10])
    budget = sum(before.values()) * (1 + SOURCE_TOLERANCE)
    assert sum(started.sizes.values()) <= budget, f"bytes of source that a start loads: {largest}"


def test_idle_broker_allocates_no_more_than_recorded(started: Started) -> None:
    budget = recorded()
    if budget.python != started.python:
        pytest.skip(f"recorded on Python {budget.python}; objects have other sizes in other versions")
    most = budget.blocks * (1 + BLOCKS_TOLERANCE)
    assert started.blocks <= most, "an idle broker allocates more blocks of memory; compare the loaded modules"
