"""Gauges of operations exist before the coordinator is loaded; their names are those of its operations."""

from __future__ import annotations

from types import ModuleType

import pytest

from ottla.coordinator.group import operations as group_operations
from ottla.coordinator.group import share_operations as share_group_operations
from ottla.coordinator.runtime import WRITE_TXN_MARKER, CoordinatorOperation
from ottla.coordinator.share import operations as share_operations
from ottla.coordinator.transaction import operations as transaction_operations
from ottla.coordinator.transaction.completion import COMPLETE
from ottla.coordinator.transaction.sweeps import ABORT_WITH_PRODUCER_ID
from ottla.server.coordination import group_gauges, share_gauges, transaction_gauges


@pytest.mark.parametrize(
    ("operations", "others", "gauges"),
    [
        pytest.param(
            (group_operations, share_group_operations),
            {
                group_operations.LIST,
                group_operations.TOPICS_DELETED,
                share_group_operations.TOPICS_DELETED,
                WRITE_TXN_MARKER,
            },
            group_gauges,
            id="group",
        ),
        pytest.param(
            (transaction_operations,),
            {transaction_operations.LIST, COMPLETE, ABORT_WITH_PRODUCER_ID},
            transaction_gauges,
            id="transaction",
        ),
        pytest.param((share_operations,), {share_operations.TOPICS_DELETED}, share_gauges, id="share"),
    ],
)
def test_every_operation_has_a_gauge(operations: tuple[ModuleType, ...], others: set[str], gauges: ModuleType) -> None:
    on_one_shard = {
        each.name for module in operations for each in vars(module).values() if isinstance(each, CoordinatorOperation)
    }
    assert set(gauges.OPERATIONS) == on_one_shard | others
    assert len(gauges.OPERATIONS) == len(on_one_shard | others)
