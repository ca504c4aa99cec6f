"""Fakes of the storage tests, on which the replicas of several brokers run here."""

from __future__ import annotations

from ..storage.conftest import fakes

__all__ = ["fakes"]
