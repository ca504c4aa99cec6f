"""Fixture of the corpus module: tests are imported without their directory on the path."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def corpus() -> ModuleType:
    spec = importlib.util.spec_from_file_location("ottla_record_corpus", Path(__file__).with_name("corpus.py"))
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
