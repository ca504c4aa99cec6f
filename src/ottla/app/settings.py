"""Node settings by their Kafka names, from the config file, `--set` and the shorthand options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ottla.common.config.properties import load_properties
from ottla.common.errors import OperatorError
from ottla.storage.directory.log_manager import EVERY_DIRECTORY

DEFAULT_DATA_DIR = "./ottla-data"


def read_settings(
    config: str | None, given: Mapping[str, str], data_dir: str | None, port: int | None = None
) -> dict[str, str]:
    """All settings of a node by their Kafka names, by precedence: shorthand options, `given` (`--set`), the file
    `config`.

    The result contains `log.dirs`; its paths and those of `cordoned.log.dirs` are absolute. Raises OperatorError.
    """
    settings = load_properties(config) if config is not None else {}
    settings.update(given)
    if port is not None:
        settings["listeners"] = _with_port(settings.get("listeners", ""), port)
    # The broker works with absolute paths; the config validation rejects an empty one.
    settings["log.dirs"] = ",".join(_data_directories(settings, data_dir))
    if settings.get("cordoned.log.dirs"):  # entries must equal those of log.dirs
        settings["cordoned.log.dirs"] = ",".join(map(_cordoned, settings["cordoned.log.dirs"].split(",")))
    if settings.get("metadata.log.dir"):
        settings["metadata.log.dir"] = _absolute(settings["metadata.log.dir"])
    _refuse_links(settings["log.dirs"].split(","), settings.get("metadata.log.dir", ""))
    return settings


def cluster_directory(settings: Mapping[str, str], data_dir: str | None) -> str:
    """The directory with the broker directories of a local cluster, from the settings for one broker's directory.

    Absolute. Raises OperatorError.
    """
    chosen = _data_directories(settings, data_dir)
    if not all(chosen):
        raise OperatorError("log.dirs contains an empty path: set it to the directory for the data of all brokers")
    if len(chosen) > 1:
        raise OperatorError(
            "log.dirs (--data-dir) has several directories, but --brokers uses one for all brokers: give "
            "one, or start the brokers one by one with their own configuration"
        )
    return chosen[0]


def _data_directories(settings: Mapping[str, str], data_dir: str | None) -> list[str]:
    """Data directories by Kafka's precedence; absolute, "" for an empty path."""
    named = settings.get("log.dirs", settings.get("log.dir", DEFAULT_DATA_DIR))
    return [_absolute(path) for path in (named if data_dir is None else data_dir).split(",")]


def _refuse_links(log_dirs: Sequence[str], metadata_log_dir: str) -> None:
    """Raise OperatorError for one directory under two names: its lock would appear to belong to another broker."""
    real: dict[str, str] = {}
    for path in filter(None, (*log_dirs, metadata_log_dir)):
        other = real.setdefault(os.path.realpath(path), path)
        if other != path:
            setting = "log.dirs" if path in log_dirs else "metadata.log.dir"
            raise OperatorError(
                f"{setting} contains {path}, the same directory as {other} through a link: give it once"
            )


def _absolute(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path.strip())) if path.strip() else ""


def _cordoned(path: str) -> str:
    return EVERY_DIRECTORY if path.strip() == EVERY_DIRECTORY else _absolute(path)


def _with_port(listeners: str, port: int) -> str:
    """`listeners` with the port of its plaintext listener replaced."""
    items = [item.strip() for item in listeners.split(",") if item.strip()]
    if not items:
        return f"PLAINTEXT://127.0.0.1:{port}"
    places = [place for place, item in enumerate(items) if item.upper().startswith("PLAINTEXT://") or len(items) == 1]
    if len(places) != 1:
        raise OperatorError(
            "--port needs one listener named PLAINTEXT in listeners: set the ports in listeners instead"
        )
    address, _, _ = items[places[0]].rpartition(":")
    items[places[0]] = f"{address}:{port}"
    return ",".join(items)
