"""Profiles: named client configurations in `~/.config/ottla/NAME.properties`.

Each is a file of Kafka's client properties, also usable by Apache Kafka's tools; `bootstrap.servers` selects the
cluster. The directory follows the XDG base directory specification.

Invariant: only the user controls the servers and secrets of a command, as with the files of OpenSSH. A profile that
belongs to another user or is writable by others is rejected, and so is one with a secret that others can read.

Left out: profiles that include another one.
"""

from __future__ import annotations

import os
import re
import stat

from ottla.common.config.properties import MAX_FILE_BYTES, decode_properties
from ottla.common.errors import OperatorError
from ottla.common.platform.files import open_regular, within
from ottla.common.suggestion import did_you_mean

DEFAULT = "default"
"""The profile of a command without a server, a file or a profile."""
SUFFIX = ".properties"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


def profile_directory() -> str:
    """`$XDG_CONFIG_HOME/ottla`, else `~/.config/ottla`."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # the specification ignores relative paths
        base = os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "ottla")


def profile_names() -> list[str]:
    """Names of existing profiles, sorted."""
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
    """The client properties of a profile. Raises OperatorError without their values."""
    found = _read(name)
    if found is None:
        there = profile_names()
        known = f"profiles: {', '.join(there)}" if there else "there are none yet"
        path = os.path.join(profile_directory(), name + SUFFIX)
        raise OperatorError(
            f"profile {name} does not exist{did_you_mean(name, there) or ':'} {known}; create it as {path}, "
            f"with bootstrap.servers and the client properties of Apache Kafka"
        )
    return found


def default_profile() -> dict[str, str] | None:
    """The properties of the profile `DEFAULT`; None if it does not exist. Raises OperatorError like `read_profile`."""
    return _read(DEFAULT)


def _read(name: str) -> dict[str, str] | None:
    if not _NAME.fullmatch(name):
        raise OperatorError(f"{name!r} is not a profile name: use letters, digits, - _ . and do not start with . or -")
    path = os.path.join(profile_directory(), name + SUFFIX)
    try:
        with open_regular(path) as file:
            status, data = os.fstat(file.fileno()), within(file.read(MAX_FILE_BYTES + 1), MAX_FILE_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise OperatorError(f"the profile {path} can't be read: {(error.strerror or str(error)).lower()}") from error
    from ottla.client.wire.secured_properties import SECRETS  # imported here: few commands have a profile

    properties = decode_properties(data, path)
    _refuse_others(path, status, sorted(SECRETS.intersection(properties)))
    return properties


def _refuse_others(path: str, status: os.stat_result, secrets: list[str]) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise OperatorError(f"the profile {path} belongs to another user: create your own")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OperatorError(f"the profile {path} is writable by other users: chmod go-rwx {path}")
    if secrets and status.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise OperatorError(f"{secrets[0]} in the profile {path} is readable by other users: chmod go-rwx {path}")
