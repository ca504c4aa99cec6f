"""Defects that are planted into the coordinator, to show that the simulation finds them.

Each is a context manager: within it the broker has the defect.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.modern.consumer.group import ConsumerGroup
from ottla.coordinator.group.modern.consumer.reconciliation import Reconciliation
from ottla.coordinator.group.offsets.offsets import Offsets
from ottla.coordinator.runtime.context import CoordinatorContext
from ottla.coordinator.runtime.timer import CoordinatorTimer


@contextmanager
def acknowledged_before_append() -> Iterator[None]:
    """Responses are sent when the operation has run, even if its records are lost."""
    original = CoordinatorContext._add

    def add(self: Any, replayed: Any, records: Any, operation: Any) -> None:
        self._finish(operation, None)
        operation.done = lambda response, error: None
        operation.appended = None
        original(self, replayed, records, operation)

    with mock.patch.object(CoordinatorContext, "_add", add):
        yield


@contextmanager
def generation_not_checked_on_commit() -> Iterator[None]:
    """Commits are accepted from any client."""
    with (
        mock.patch.object(ClassicGroup, "validate_offset_commit", return_value=None),
        mock.patch.object(ConsumerGroup, "validate_offset_commit", return_value=None),
        mock.patch.object(Offsets, "_validate_commit", return_value=None),
    ):
        yield


@contextmanager
def given_before_revocation() -> Iterator[None]:
    """A partition goes to the next member at once, while the last one still has it."""
    with mock.patch.object(Reconciliation, "_is_free", return_value=True):
        yield


@contextmanager
def revocation_taken_for_granted() -> Iterator[None]:
    """The next heartbeat counts as a confirmation, with any content."""
    with mock.patch.object(Reconciliation, "_reports_any_of", return_value=False):
        yield


@contextmanager
def sessions_never_expire() -> Iterator[None]:
    """Members that died stay in their group."""
    original = CoordinatorTimer.schedule

    def schedule(self: Any, key: str, *arguments: Any, **options: Any) -> None:
        if "session" not in key:
            original(self, key, *arguments, **options)

    with mock.patch.object(CoordinatorTimer, "schedule", schedule):
        yield


@contextmanager
def failed_append_not_reverted() -> Iterator[None]:
    """After the disk refused a batch the state still contains its changes."""
    original = CoordinatorContext._fail_batch

    def fail_batch(self: Any, error: Any) -> None:
        with mock.patch.object(type(self.registry), "revert_to", return_value=None):
            original(self, error)

    with mock.patch.object(CoordinatorContext, "_fail_batch", fail_batch):
        yield


@pytest.fixture(scope="session")
def planted() -> SimpleNamespace:
    """The defects above, since test modules can't import a conftest."""
    return SimpleNamespace(
        acknowledged_before_append=acknowledged_before_append,
        generation_not_checked_on_commit=generation_not_checked_on_commit,
        given_before_revocation=given_before_revocation,
        revocation_taken_for_granted=revocation_taken_for_granted,
        sessions_never_expire=sessions_never_expire,
        failed_append_not_reverted=failed_append_not_reverted,
    )
