"""Locations of tables: paths of this machine, and URLs of object stores. Needs no package of the pipeline."""

from __future__ import annotations

SCHEMES = ("s3", "gs", "az")
ALIASES = {"s3a": "s3", "s3n": "s3"}
"""What Hadoop calls S3."""


def is_url(location: object) -> bool:
    """True for the location of an object store; `file:` and plain paths are this machine's."""
    scheme, colon, _ = str(location).partition("://")
    return bool(colon) and ALIASES.get(scheme, scheme) in SCHEMES
