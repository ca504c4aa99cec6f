"""The console of `ottla start --console-port`: a process of its own, so that the broker's loop serves no page.

Its mask file is read here only to check it. The process ends with this one, also after a crash: its pipe is closed
then.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Sequence

from ottla.common.config.properties import load_properties
from ottla.common.errors import OperatorError
from ottla.common.platform.endpoint import Endpoint
from ottla.pipeline.stores.locations import require_directory

logger = logging.getLogger(__name__)

PACKAGES = ("htpy", "starlette", "uvicorn")
END_TIMEOUT_S = 5.0
_OF_COMMANDS = ("OTTLA_PROFILE", "OTTLA_COMMAND_CONFIG", "OTTLA_BOOTSTRAP_SERVER")
"""Variables of commands of the same user, which are not for this console."""


class ConsoleProcess:
    """A console on this machine for one listener of the cluster."""

    def __init__(
        self, port: int, config_file: str | None, masks_file: str | None, tables: str | None, token_file: str | None
    ) -> None:
        """`config_file` has the client properties for a listener with TLS or SASL, `masks_file` the mask rules.

        `tables` is a directory or a URL; `token_file` has the token of the metrics.

        Raises OperatorError.
        """
        missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
        if missing:
            raise OperatorError(
                f"--console-port needs the package {missing[0]}: install it with pip install 'ottla[console]'"
            )
        self._port = port
        self._config_file = None if config_file is None else os.path.abspath(config_file)
        self._masks_file = None if masks_file is None else os.path.abspath(masks_file)
        if masks_file is not None:
            from ottla.console.mask_policy import read_masks  # imported here: most consoles have no mask file

            read_masks(masks_file, b"", "--console-masks")
        properties = {} if config_file is None else load_properties(config_file, "--console-config")
        self._protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        self._tables = None if tables is None else require_directory(tables, "--console-tables")
        self._token_file = None if token_file is None else os.path.abspath(token_file)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: int | None = None

    def choose(self, listeners: Sequence[Endpoint]) -> Endpoint:
        """The first listener with the protocol of the console. Raises OperatorError if there is none."""
        for each in listeners:
            if each.security_protocol == self._protocol:
                return each
        raise OperatorError(
            f"--console-port found no {self._protocol} listener for clients: give client properties with the "
            "security.protocol of one in --console-config"
        )

    def start(self, bootstrap_servers: str, metrics: Sequence[str] = ()) -> None:
        """Start the process; `metrics` has the addresses of metrics of brokers that use no TLS."""
        command = [sys.executable, "-P", "-m", "ottla", "console", "-b", bootstrap_servers, "--port", str(self._port)]
        if self._config_file is not None:
            command += ["--command-config", self._config_file]
        if self._masks_file is not None:
            command += ["--masks", self._masks_file]
        if self._tables is not None:
            command += ["--tables", self._tables]
        for address in metrics:
            command += ["--metrics-url", f"http://{address}/metrics"]
        if metrics and self._token_file is not None:
            command += ["--metrics-token-file", self._token_file]
        environment = {name: value for name, value in os.environ.items() if name not in _OF_COMMANDS}
        theirs, self._pipe = os.pipe()
        try:
            command += ["--stop-with-pipe", str(theirs)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, pass_fds=[theirs], env=environment, start_new_session=True
            )
        except OSError as error:
            logger.error("starting the console failed: %s", error.strerror)
        finally:
            os.close(theirs)

    def close(self) -> None:
        """End the process; does nothing if it was not started."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
        if self._process is not None:
            try:
                self._process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
