"""Writer of the file of `ottla config recover`, which `common.config.ignored_settings` reads."""

from __future__ import annotations

import os
from collections.abc import Iterable

from ottla.common.errors import OperatorError


def write_ignored(directory: str, names: Iterable[str]) -> frozenset[str]:
    """Replace the file in a data directory, or remove it if `names` is empty. Raises OperatorError."""
    from ottla.common.config.ignored_settings import IGNORED_FILE
    from ottla.common.config.lockouts import ignorable
    from ottla.common.platform.disk_refusal import disk_refusal

    path = os.path.join(directory, IGNORED_FILE)
    if not os.path.exists(os.path.join(directory, "meta.properties")):
        raise OperatorError(f"{directory} is not a data directory of a node: name one of log.dirs with --data-dir")
    chosen = frozenset(ignorable(name, "--ignore") for name in names)
    try:
        if not chosen:
            if os.path.lexists(path):
                os.unlink(path)
            return chosen
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            file.writelines(f"{name}\n" for name in sorted(chosen))
            file.flush()
            os.fsync(file.fileno())
        os.replace(path + ".tmp", path)
    except OSError as error:
        raise disk_refusal(error, directory) from error
    return chosen
