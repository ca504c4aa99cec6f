"""The fakes of the storage tests, which the replicas of several brokers run on here."""

from __future__ import annotations

from ..storage.conftest import fakes

__all__ = ["fakes"]
