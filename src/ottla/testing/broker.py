"""`Broker`: one `ottla start` in its own process, on a free port, with a temporary data directory.

Invariants: the process has its own session, so Ctrl-C in a terminal reaches only the test runner. It is killed at the
latest when the Python process that started it exits normally. It stops if that process ends in any other way, since its
input is a pipe that is then closed (or closed by the last process forked from it). A restart reuses port and data
directory, so connected clients resume, and no other process gets the port in between. All runs log to one file.

Left out: any use of broker code in this process. Not thread-safe.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from ottla.client.wire.time_limit import require_seconds
from ottla.common.config.properties import format_properties, load_properties, value_text
from ottla.common.errors import OttlaError
from ottla.security.authority import Authority, pem_stores
from ottla.security.sasl.jaas import PLAIN_MODULE, parse_jaas

READY_POLL_S = 0.005
LOG_TAIL_CHARS = 4_000


class BrokerFailure(OttlaError):
    """The broker did not start, did not stop, or exited unexpectedly; the message contains the end of its log."""


def _dispose(holder: list[subprocess.Popen[bytes]], work_dir: str) -> None:
    """Cleanup at interpreter exit, and the normal end of `Broker.close`."""
    for process in holder:
        if process.poll() is None:
            process.kill()
        _reap(process)
    holder.clear()
    shutil.rmtree(work_dir, ignore_errors=True)


def _reap(process: subprocess.Popen[bytes]) -> int:
    """Wait for the exit and close the pipe; returns the exit code."""
    exit_code = process.wait()
    if process.stdin is not None:
        process.stdin.close()
    return exit_code


TEST_CONFIGS: Mapping[str, object] = {"group.initial.rebalance.delay.ms": 0, "log.retention.ms": -1}
"""Defaults for tests: the first join of every group would otherwise take 3 s, and records with old timestamps would be
deleted half a minute after the start."""


class Broker:
    """A broker for tests; use it as a context manager, or `start` and `close`.

    `configs` are broker settings by their Kafka names; by default, the first rebalance of a group does not wait for
    further members, and records are not deleted by age (`TEST_CONFIGS`). A given `data_dir` is kept; by default the
    broker gets a temporary one that `close` removes. `arguments` are appended to the command line of `ottla start`.
    With `security` "ssl" the listeners use TLS and require client certificates of a generated authority; with
    "sasl_ssl" they require a name and a password by SASL/PLAIN; see `client_properties`. `brokers` is the number of
    brokers of a cluster (`ottla start --brokers N`), which starts, stops and exits as one.
    """

    def __init__(
        self,
        *,
        configs: Mapping[str, object] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        port: int = 0,
        arguments: Sequence[str] = (),
        security: str = "plaintext",
        brokers: int | None = None,
        python: str = sys.executable,
        start_timeout_s: float = 120.0,
        stop_timeout_s: float = 120.0,
    ) -> None:
        for limit_s in (start_timeout_s, stop_timeout_s):
            require_seconds(limit_s)
        self._work_dir = tempfile.mkdtemp(prefix="ottla-broker-")
        self._data_dir = Path(data_dir) if data_dir is not None else Path(self._work_dir, "data")
        self._log_path = Path(self._work_dir, "broker.log")
        self._ready_path = Path(self._work_dir, "ready.json")
        self._brokers = brokers
        self._keys = _make_keys(Path(self._work_dir), security, alone=brokers is None)
        chosen = {**TEST_CONFIGS, **(configs or {})}
        self._configs = {name: value_text(value) for name, value in chosen.items()}
        self._port = port
        self._arguments = tuple(arguments)
        self._python = python
        self._start_timeout_s = start_timeout_s
        self._stop_timeout_s = stop_timeout_s
        self._ready: dict[str, Any] = {}
        self._exit_code: int | None = None
        self._processes: list[subprocess.Popen[bytes]] = []  # empty or one; shared with the finalizer
        self._held_port: socket.socket | None = None
        self._finalizer = weakref.finalize(self, _dispose, self._processes, self._work_dir)

    def __enter__(self) -> Broker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(check=kind is None)

    def __repr__(self) -> str:
        return f"<ottla.testing.Broker {self._ready.get('bootstrap_servers', 'not started')} in {self._data_dir}>"

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, for the setting of that name in clients. Raises BrokerFailure before the first start."""
        return str(self.ready["bootstrap_servers"])

    @property
    def client_properties(self) -> Path:
        """With `security`: the path of Kafka's client properties of the user `client`, for `--command-config`.

        Its directory also contains `ca.pem` with the certificate of the authority, and `client.pem` with key and
        certificate of the user. With "sasl_ssl" the certificate is not requested: the name is `client` and the password
        `client_password`. Raises BrokerFailure for a plaintext broker.
        """
        if self._keys is None:
            raise BrokerFailure('the broker is plaintext: create it with security="ssl" or "sasl_ssl"')
        return self._keys / "client.properties"

    @property
    def client_password(self) -> str:
        """With security "sasl_ssl": the SASL/PLAIN password of `client`."""
        options = parse_jaas(
            "sasl.jaas.config", load_properties(str(self.client_properties)).get("sasl.jaas.config", "")
        )
        return options.options["password"]

    @property
    def ready(self) -> Mapping[str, Any]:
        """The ready file of the latest start: version, pid, node_id, cluster_id, listeners, metrics, data_dir, ..."""
        if not self._ready:
            raise BrokerFailure("the broker has not been started")
        return self._ready

    @property
    def port(self) -> int:
        """The port of the first listener of the first broker; unchanged by restarts."""
        return int(self.bootstrap_servers.partition(",")[0].rpartition(":")[2])

    @property
    def pid(self) -> int:
        """The process id of the running broker. Raises BrokerFailure if it is not running."""
        if not self.running:
            raise BrokerFailure("the broker is not running")
        return self._processes[0].pid

    @property
    def running(self) -> bool:
        return bool(self._processes) and self._processes[0].poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the latest run: 0 after a clean stop, -9 after `kill`; None while it runs."""
        if self._processes:
            return self._processes[0].poll()
        return self._exit_code

    @property
    def data_dir(self) -> Path:
        return self._data_dir

    def logs(self) -> str:
        """All output of the broker on standard output and standard error, over all restarts."""
        try:
            return self._log_path.read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def start(self) -> Broker:
        """Start the broker and return once it accepts connections; does nothing if it is running.

        Raises BrokerFailure with the broker's error message if it exits or is not ready in time.
        """
        if self.running:
            return self
        if not self._finalizer.alive:
            raise BrokerFailure("the broker is closed: create a new one")
        self._reap()
        self._ready_path.unlink(missing_ok=True)
        with self._log_path.open("ab") as log:
            process = subprocess.Popen(
                self._command(),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        self._wait_until_ready(process)
        return self

    def _command(self) -> list[str]:
        command = [self._python, "-m", "ottla", "start"]
        command += ["--port", str(self._port), "--data-dir", str(self._data_dir), "--ready-file", str(self._ready_path)]
        command += ["--stop-with-pipe", "0"]
        if self._brokers is not None:
            command += ["--brokers", str(self._brokers)]
        if self._keys is not None:
            command += ["--config", str(self._keys / "server.properties")]
        for name, value in self._configs.items():
            command += ["--set", f"{name}={value}"]
        return [*command, *self._arguments]

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while True:
            # The broker writes the file by rename, so it is complete once it exists.
            if self._ready_path.exists():
                self._ready = json.loads(self._ready_path.read_bytes())
                self._port = self.port
                self._release_port()
                return
            try:
                exit_code = process.wait(READY_POLL_S)
            except subprocess.TimeoutExpired:
                if time.monotonic() < deadline:
                    continue
                self.kill()
                raise self._failure(f"the broker was not ready in {self._start_timeout_s:g} s") from None
            self._reap()
            raise self._failure(f"the broker exited with exit code {exit_code} before it was ready")

    def stop(self) -> int:
        """Stop like SIGTERM and return the exit code (0: everything flushed and checkpointed).

        Raises BrokerFailure if it does not exit in time; it is killed then. If the broker is not running, returns the
        latest exit code.
        """
        if self.running:
            process = self._processes[0]
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(self._stop_timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
                raise self._failure(f"the broker did not stop in {self._stop_timeout_s:g} s") from None
        self._reap()
        return self._exit_code or 0

    def kill(self) -> None:
        """SIGKILL, and wait for the exit: like a crash of the process (the page cache survives)."""
        if self.running:
            self._processes[0].kill()
            self._processes[0].wait()
        self._reap()

    def restart(self, *, crash: bool = False) -> Broker:
        """Stop (or with `crash` kill) the broker, then start it on the same port and data directory."""
        if crash:
            self.kill()
        else:
            self.stop()
        return self.start()

    def close(self, *, check: bool = True) -> None:
        """Stop the broker and remove all temporary files; idempotent.

        With `check`, raises BrokerFailure if the broker had exited unexpectedly, or stopped with another exit code than
        0.
        """
        if not self._finalizer.alive:
            return
        try:
            ran = bool(self._processes)
            exit_code = self.stop()
            if check and ran and exit_code != 0:
                raise self._failure(f"the broker exited with exit code {exit_code}")
        finally:
            self._release_port()
            self._finalizer()

    def _reap(self) -> None:
        if self._processes:
            self._exit_code = _reap(self._processes[0])
            self._processes.clear()
            if self._ready and sys.platform == "linux":
                self._hold_port()

    def _hold_port(self) -> None:
        """Bind the port until the broker is back: otherwise the system may assign it to another process.

        A bound socket that does not listen permits the broker to bind the same port, on Linux.
        """
        self._release_port()
        host = self.bootstrap_servers.partition(",")[0].rpartition(":")[0].strip("[]")
        with suppress(OSError):  # the advertised port is not the broker's own
            family, kind, _, _, address = socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)[0]
            held = self._held_port = socket.socket(family, kind)
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(address)

    def _release_port(self) -> None:
        if self._held_port is not None:
            self._held_port.close()
            self._held_port = None

    def _failure(self, reason: str) -> BrokerFailure:
        tail = self.logs()[-LOG_TAIL_CHARS:].strip()
        return BrokerFailure(f"{reason}; the end of its log:\n{tail}" if tail else f"{reason} without a log")


def _make_keys(work_dir: Path, security: str, *, alone: bool) -> Path | None:
    """The directory of keys and settings for `security`, with a new authority; None for plaintext."""
    if security == "plaintext":
        return None
    if security not in ("ssl", "sasl_ssl"):
        raise BrokerFailure(f"security must be plaintext, ssl or sasl_ssl, not {security!r}")
    protocol = security.upper()
    authority, now = Authority.make("authority of a test", datetime.now(UTC)), datetime.now(UTC)
    folder = work_dir / "keys"
    folder.mkdir(mode=0o700)
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "server.pem").write_bytes(authority.issue("server", ("localhost", "127.0.0.1"), now))
    (folder / "client.pem").write_bytes(authority.issue("client", (), now))
    client = {"security.protocol": protocol, **pem_stores(str(folder), "client")}
    server = {
        **({"listeners": f"{protocol}://localhost:0"} if alone else {}),
        "security.inter.broker.protocol": protocol,
        "ssl.client.auth": "required" if security == "ssl" else "none",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        **pem_stores(str(folder), "server"),
    }
    if security == "sasl_ssl":
        words = {name: secrets.token_hex(16) for name in ("server", "client")}
        users = " ".join(f'user_{name}="{word}"' for name, word in words.items())
        client |= {"sasl.mechanism": "PLAIN", "sasl.jaas.config": _login("client", words["client"])}
        of_node = _login("server", words["server"], users)
        server |= {
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            f"listener.name.{security}.plain.sasl.jaas.config": of_node,
            **({} if alone else {"listener.name.controller.plain.sasl.jaas.config": of_node}),
        }
    (folder / "client.properties").write_text(format_properties(client))
    (folder / "server.properties").write_text(format_properties(server))
    return folder


def _login(name: str, password: str, users: str = "") -> str:
    return f'{PLAIN_MODULE} required username="{name}" password="{password}" {users};'
