"""Locations of tables: paths of this machine, and URLs of object stores. Needs no package of the pipeline."""

from __future__ import annotations

import os

from ottla.common.errors import OperatorError
from ottla.common.extras import require_packages

SCHEMES = ("s3", "gs", "az")
ALIASES = {"s3a": "s3", "s3n": "s3"}
"""What Hadoop calls S3."""
READER_PACKAGES = {"pyarrow": "pyarrow", "deltalake": "deltalake", "numpy": "numpy"}
"""Module -> package, for readers of tables without Spark."""


def is_url(location: object) -> bool:
    """True for the location of an object store; `file:` and plain paths are this machine's."""
    scheme, colon, _ = str(location).partition("://")
    return bool(colon) and ALIASES.get(scheme, scheme) in SCHEMES


def require_directory(location: str, option: str) -> str:
    """The absolute path, or the URL, of a directory of tables. Raises OperatorError, also for missing packages."""
    require_packages(f"{option} needs", READER_PACKAGES, "ottla[pipeline]")
    if is_url(location):
        return location
    if not os.path.isdir(location):
        raise OperatorError(f"{option} {location} is not a directory: name one that contains tables")
    return os.path.abspath(location)
