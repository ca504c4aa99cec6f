"""The store of any kind at a location."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ottla.pipeline.stores.local_store import LocalStore
from ottla.pipeline.stores.locations import is_url
from ottla.pipeline.stores.object_store import open_object_store
from ottla.pipeline.stores.store import Store


def open_store(location: str | os.PathLike[str], settings: Mapping[str, str] | None = None) -> Store:
    """`location`: a path, or the URL of an object store. `settings`: as another store of the same kind has them; None
    takes those of the environment. Raises OperatorError."""
    if is_url(location):
        return open_object_store(str(location), settings)
    return LocalStore(Path(location).absolute())
