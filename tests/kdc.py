"""A KDC of MIT Kerberos in a separate process, with realm, keys and configuration in one folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType

import pytest

from ottla.app.ports import free_ports

REALM = "OTTLA.TEST"
START_S = 120.0
ATTEMPTS = 5
"""Attempts to get a port: another process may take it between the search and the start."""
SYSTEM_COMMANDS = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))


def need_of_system(command: str) -> str:
    """Returns the path of an administration command; skips the test if the command is missing."""
    found = shutil.which(command, path=SYSTEM_COMMANDS)
    if found is None:
        pytest.skip(f"{command} is not installed on this machine")
    return found


class Kdc:
    """A realm. As a context it ends its process."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._command = need_of_system("krb5kdc")
        self._kadmin = need_of_system("kadmin.local")
        self.config = home / "krb5.conf"
        self._log = home / "kdc.log"
        self._settings = {"KRB5_CONFIG": str(self.config), "KRB5_KDC_PROFILE": str(home / "kdc.conf")}
        self._configure(0)
        self._run(need_of_system("kdb5_util"), "create", "-s", "-r", REALM, "-P", "of-the-database")

    def __enter__(self) -> Kdc:
        for _ in range(ATTEMPTS):
            self._configure(*free_ports(1))
            if self.start():
                return self
        raise AssertionError(self._words())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """Kill the KDC, which is unavailable until it is started again."""
        self._process.kill()
        self._process.wait()

    def given(self, client: str, service: str) -> int:
        """How many tickets for a service it gave to a client, both by the beginnings of their principals."""
        return len(re.findall(rf" ISSUE: .*[ ,]{re.escape(client)}\S* for {re.escape(service)}", self._log.read_text()))

    def short_tickets(self, life_s: int) -> None:
        """From now on none lives longer."""
        self.admin(f"modprinc -maxlife {life_s}sec krbtgt/{REALM}")

    def keytab(self, name: str, *principals: str) -> Path:
        """A file with new keys of them, behind those that it has; they are made where there are none."""
        path = self._home / f"{name}.keytab"
        known = self.admin("listprincs").split()
        lines = [f"addprinc -randkey {one}" for one in principals if f"{one}@{REALM}" not in known]
        self.admin(*lines, *(f"ktadd -k {path} {one}" for one in principals))
        assert path.exists(), self._words()
        return path

    def admin(self, *lines: str) -> str:
        """What kadmin says to commands of its own."""
        return self._run(self._kadmin, "-r", REALM, stdin="\n".join((*lines, "quit", "")))

    def _run(self, *command: str, stdin: str = "") -> str:
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, env=self._environment(), timeout=START_S, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._settings}

    def start(self) -> bool:
        """Whether it listens, which it says in its log; False where it ended, as without a port."""
        begins = self._log.stat().st_size if self._log.exists() else 0
        output = (self._home / "kdc.out").open("ab")
        with output:
            self._process = subprocess.Popen(
                [self._command, "-n", "-r", REALM], stdout=output, stderr=output, env=self._environment()
            )
        deadline = time.monotonic() + START_S
        while not self._log.exists() or b"commencing operation" not in self._log.read_bytes()[begins:]:
            if self._process.poll() is not None:
                return False
            assert time.monotonic() < deadline, self._words()
            time.sleep(0.02)
        return True

    def _words(self) -> str:
        return "".join(
            path.read_text(errors="replace")[-3000:] for path in (self._log, self._home / "kdc.out") if path.exists()
        )

    def _configure(self, port: int) -> None:
        where = f"127.0.0.1:{port}"
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_lookup_realm = false\nrdns = false\n"
            'dns_canonicalize_hostname = false\nqualify_shortname = ""\nudp_preference_limit = 1\n'
            f"[realms]\n{REALM} = {{\nkdc = {where}\n}}\n[domain_realm]\nlocalhost = {REALM}\n"
            f"[logging]\nkdc = FILE:{self._log}\ndefault = FILE:{self._log}\n"
        )
        Path(self._settings["KRB5_KDC_PROFILE"]).write_text(
            f"[kdcdefaults]\nkdc_listen = {where}\nkdc_tcp_listen = {where}\n"
            f"[realms]\n{REALM} = {{\ndatabase_name = {self._home / 'principal'}\n"
            f"key_stash_file = {self._home / 'stash'}\n"
            f"acl_file = {self._home / 'acl'}\nsupported_enctypes = aes256-cts-hmac-sha1-96:normal\n}}\n"
        )
