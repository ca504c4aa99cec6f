"""`ottla security renew`, and warnings before certificates expire."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla.app.certificates import CHECK_S, METRIC, CertificateWatch
from ottla.app.main import cli
from ottla.common.certificate_expiry import DAY_S, days_left
from ottla.metrics.exposition import render
from ottla.metrics.registry import MetricsRegistry
from ottla.security.authority import Authority
from ottla.security.stores import Identity, read_identity


def security(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["security", *arguments])
    assert result.exit_code == code, result.output
    return result


def identity(path: Path) -> Identity:
    return read_identity(path.read_bytes(), str(path), None, None)


def days(path: Path) -> int:
    return days_left(identity(path).expiry_s, datetime.now(UTC).timestamp()) + 1


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    security("init", str(folder), "--days", "20", "--host", "a.example.com", "--host", "10.0.0.1", "--client", "bob")
    return folder


def test_certificates_are_valid_for_the_given_days(keys: Path) -> None:
    assert [days(keys / f"{name}.pem") for name in ("server", "admin", "bob")] == [20, 20, 20]


def test_renewed_certificates_keep_subject_hosts_and_mode(keys: Path) -> None:
    before, authority = identity(keys / "server.pem"), (keys / "ca.pem").read_bytes()
    (keys / "bob.pem").chmod(0o640)
    foreign = Authority.make("other", datetime.now(UTC)).issue("x", (), datetime.now(UTC))
    (keys / "foreign.pem").write_bytes(foreign)
    output = security("renew", str(keys), "--days", "400").stdout
    assert [line.partition(":")[0] for line in output.splitlines()[:-1]] == ["admin.pem", "bob.pem", "server.pem"]
    after = identity(keys / "server.pem")
    assert (after.subject, after.hosts) == (before.subject, before.hosts)
    assert after.pem != before.pem
    assert days(keys / "server.pem") == 400
    assert (keys / "bob.pem").stat().st_mode & 0o777 == 0o640
    assert (keys / "foreign.pem").read_bytes() == foreign
    assert (keys / "ca.pem").read_bytes() == authority
    assert not list(keys.glob("*.new"))


def test_renewal_within_days_leaves_younger_certificates(keys: Path) -> None:
    assert security("renew", str(keys), "--within", "10").stdout == "No certificate to renew.\n"
    assert "server.pem" in security("renew", str(keys), "--within", "30").stdout


def test_renewal_without_an_authority_is_refused(tmp_path: Path) -> None:
    assert "ca.pem can't be read" in security("renew", str(tmp_path), code=2).output
    (tmp_path / "ca.pem").write_text("x")
    (tmp_path / "ca-key.pem").write_text("x")
    assert "has no authority" in security("renew", str(tmp_path), code=2).output


def test_certificate_does_not_outlive_its_authority() -> None:
    now = datetime.now(UTC)
    authority = Authority.make("short", now, 10)
    issued = read_identity(authority.issue("x", (), now, 100), "x", None, None)
    assert issued.expiry_s <= (now + timedelta(days=10)).timestamp()


class Timers:
    """A scheduler that keeps the latest timer."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.run: Callable[[], object] = lambda: None

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Any:
        self.delay_s, self.run = delay_s, callback
        return SimpleNamespace(cancel=lambda: None)


def test_expiry_is_logged_daily_and_exported(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [1_000_000.0]
    end_s = now_s[0] + 32 * DAY_S
    timers, registry = Timers(), MetricsRegistry()
    listener = SimpleNamespace(name="SSL", expiry_s=end_s)
    watch = CertificateWatch([listener], timers, registry, lambda: now_s[0])  # type: ignore[list-item, arg-type]
    watch.begin()
    levels = []
    for _ in range(33):
        assert timers.delay_s == CHECK_S
        now_s[0] += CHECK_S
        caplog.clear()
        timers.run()
        levels.append([record.levelno for record in caplog.records])
    assert levels == [[]] + [[logging.WARNING]] * 23 + [[logging.ERROR]] * 9
    assert "has expired" in caplog.text
    assert f'{METRIC}{{listener="SSL"}} {int(end_s)}' in b"".join(render(registry)).decode()
