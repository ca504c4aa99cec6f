"""The coordinator of each test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .conversation import Conversation


@pytest.fixture
def talk() -> Conversation:
    """A coordinator of transactions v2 with Kafka's defaults."""
    return Conversation()


@pytest.fixture
def talk_v1() -> Conversation:
    """The same at level 1 of transaction.version."""
    return Conversation(transaction_version=1)


@pytest.fixture
def make_talk() -> Callable[..., Conversation]:
    """Makes a coordinator with other settings."""
    return Conversation
