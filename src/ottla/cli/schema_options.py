"""Options of commands that decode keys and values by schemas."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import F

if TYPE_CHECKING:
    from ottla.schemas.settings import SchemaFile, SchemaSettings

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
SCHEMA_OPTIONS = ("schema", "message", "key_schema", "key_message", "schema_registry", "schema_registry_ca")
_WITH_FILES = ("avro", "protobuf")


def registry_options(function: Any) -> Any:
    """`--schema-registry` and `--schema-registry-ca`."""
    url = click.option(
        "--schema-registry",
        metavar="URL",
        help="Schema registry of the schema ids in values or headers; user:password@ before the host authenticates.",
    )
    authorities = click.option(
        "--schema-registry-ca",
        type=_FILE,
        metavar="FILE",
        help="CA certificates of the registry in PEM.  [default: those of the system]",
    )
    return url(authorities(function))


def schema_options(function: F) -> F:
    """SCHEMA_OPTIONS, for `parse_schemas`."""
    kinds = "an Avro schema, or a descriptor set of protoc"
    options: list[Callable[[Any], Any]] = [
        click.option("--schema", type=_FILE, metavar="FILE", help=f"Schema of values: {kinds}."),
        click.option("--message", metavar="NAME", help="Message type of values in the descriptor set."),
        click.option("--key-schema", type=_FILE, metavar="FILE", help=f"Schema of keys: {kinds}."),
        click.option("--key-message", metavar="NAME", help="Message type of keys in the descriptor set."),
        registry_options,
    ]
    for option in reversed(options):
        function = option(function)
    return function


def parse_schemas(choice: dict[str, Any]) -> SchemaSettings | None:
    """The schemas of SCHEMA_OPTIONS; None without any.

    Raises UsageError for an option that has no effect, OperatorError for an unreadable file or an invalid URL.
    """
    if all(choice[name] is None for name in SCHEMA_OPTIONS):
        return None
    from ottla.schemas.settings import SchemaSettings, open_registry

    registry = None
    if choice["schema_registry"] is not None:
        registry = open_registry(choice["schema_registry"], choice["schema_registry_ca"])
    elif choice["schema_registry_ca"] is not None:
        raise click.UsageError("--schema-registry-ca applies to a schema registry: add --schema-registry URL")
    return SchemaSettings(
        registry, _schema_file(choice, "key-", "--key-decoder"), _schema_file(choice, "", "--value-decoder")
    )


def _schema_file(choice: dict[str, Any], prefix: str, option: str) -> SchemaFile | None:
    name = prefix.replace("-", "_")
    path, message, decoder = choice[f"{name}schema"], choice[f"{name}message"], choice[option[2:].replace("-", "_")]
    if path is None:
        if message is not None:
            raise click.UsageError(f"--{prefix}message names a message of a descriptor set: add --{prefix}schema FILE")
        return None
    if decoder not in _WITH_FILES and not choice.get("is_resumed"):
        raise click.UsageError(
            f"--{prefix}schema has no effect with {option} {decoder}: use {' or '.join(_WITH_FILES)}"
        )
    from ottla.schemas.settings import SchemaFile, read_schema_bytes

    return SchemaFile(read_schema_bytes(path), message)
