"""Profiles: how somebody reaches a cluster, by a name, in `~/.config/ottla/NAME.properties`.

Each is a file of Kafka's client properties, which Apache Kafka's tools take as it is; `bootstrap.servers` says where.
Where they lie follows the XDG base directory specification.

Invariant: nobody else says where a command leads or with which secret, as with the files of OpenSSH: a profile that is
another user's or that others may change is refused, and so is one with a secret that others may read.

Left out: one profile that begins with another.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from ottla.client.wire.security import SECRETS
from ottla.common.config.properties import MAX_FILE_BYTES, decode_properties
from ottla.common.errors import OperatorError
from ottla.common.platform.files import open_regular, within
from ottla.common.suggestion import did_you_mean

DEFAULT = "default"
"""The profile of a command that names neither a server nor a file nor a profile."""
SUFFIX = ".properties"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def profile_directory() -> Path:
    """`$XDG_CONFIG_HOME/ottla`, else `~/.config/ottla`."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # by the specification such a one counts for nothing
        base = os.path.join(os.path.expanduser("~"), ".config")
    return Path(base) / "ottla"


def profile_names() -> list[str]:
    """Those that are there, sorted."""
    try:
        names = os.listdir(profile_directory())
    except OSError:
        return []
    return sorted(
        name.removesuffix(SUFFIX)
        for name in names
        if name.endswith(SUFFIX) and _NAME.fullmatch(name.removesuffix(SUFFIX))
    )


def read_profile(name: str) -> dict[str, str]:
    """The client properties of a profile. Raises OperatorError, which shows none of them."""
    found = _read(name)
    if found is None:
        there = profile_names()
        known = f"there are {', '.join(there)}" if there else "there is none yet"
        raise OperatorError(
            f"there is no profile {name}{did_you_mean(name, there) or ':'} {known}; make one as "
            f"{profile_directory() / (name + SUFFIX)}, with bootstrap.servers and the client properties of Apache Kafka"
        )
    return found


def default_profile() -> dict[str, str] | None:
    """The properties of the profile `DEFAULT`; None where there is none. Raises OperatorError as its sibling above."""
    return _read(DEFAULT)


def _read(name: str) -> dict[str, str] | None:
    if not _NAME.fullmatch(name):
        raise OperatorError(
            f"{name!r} is no name of a profile: it has letters, digits, - _ . and begins with no . or -"
        )
    path = str(profile_directory() / (name + SUFFIX))
    try:
        with open_regular(path) as file:
            status, data = os.fstat(file.fileno()), within(file.read(MAX_FILE_BYTES + 1), MAX_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise OperatorError(f"the profile {path} can't be read: {(error.strerror or str(error)).lower()}") from error
    properties = decode_properties(data, path)
    _refuse_others(path, status, sorted(SECRETS.intersection(properties)))
    return properties


def _refuse_others(path: str, status: os.stat_result, secrets: list[str]) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise OperatorError(f"the profile {path} belongs to another user, who may change it: make one of your own")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OperatorError(f"others may change the profile {path}, and where it leads: chmod go-rwx {path}")
    if secrets and status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise OperatorError(f"others may read {secrets[0]} in the profile {path}: chmod go-rwx {path}")
