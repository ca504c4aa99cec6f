"""CRC-32C from the native module of the package `crc32c`.

The package's own `__init__` reads its version from the installed metadata, which loads `email`, `zipfile` and
`argparse`: 24 of the 155 ms from process start to the first answered request. So its extension module is loaded
directly; if a later release has no module of that name, the package is imported normally.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Callable

Checksum = Callable[..., int]


def _load() -> Checksum:
    package = importlib.util.find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = importlib.machinery.PathFinder.find_spec("crc32c._crc32c", places)
    if spec is None or spec.loader is None:
        import crc32c as package_module

        whole: Checksum = package_module.crc32c
        return whole
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    native: Checksum = module.crc32c
    return native


crc32c: Checksum = _load()
"""Compute `crc32c(data, previous=0)`: the checksum of `data`, continuing from `previous`."""
