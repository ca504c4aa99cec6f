"""The settings of a node: what the file, `--set` and the shorthands say, and which of them wins."""

from __future__ import annotations

import os

import pytest

from ottla.app.settings import read_settings
from ottla.common.errors import OperatorError


def settings_of(
    config: str | None = None, given: dict[str, str] | None = None, data_dir: str | None = None, port: int | None = None
) -> dict[str, str]:
    return read_settings(config, given or {}, data_dir, port)


def test_settings_of_file_and_command_line_are_merged(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nlog.dir=/from/file\nlog.retention.hours=1\n")
    settings = settings_of(config=str(path), given={"log.retention.hours": "2"}, data_dir="/chosen")
    assert settings["num.partitions"] == "3"
    assert settings["log.retention.hours"] == "2"
    assert settings["log.dirs"] == "/chosen"
    assert settings_of(config=str(path))["log.dirs"] == "/from/file"
    assert settings_of(given={"log.dirs": "relative"})["log.dirs"] == os.path.abspath("relative")
    assert settings_of()["log.dirs"] == os.path.abspath("ottla-data")


@pytest.mark.parametrize(
    ("listeners", "expected"),
    [
        ("", "PLAINTEXT://127.0.0.1:7"),
        ("PLAINTEXT://:9092", "PLAINTEXT://:7"),
        ("PLAINTEXT://[::1]:9092", "PLAINTEXT://[::1]:7"),
        ("CLIENTS://10.0.0.1:1", "CLIENTS://10.0.0.1:7"),
        ("CONTROLLER://:9093, plaintext://a:1", "CONTROLLER://:9093,plaintext://a:7"),
    ],
)
def test_port_is_that_of_the_plaintext_listener(listeners, expected):
    assert settings_of(given={"listeners": listeners}, port=7)["listeners"] == expected


def test_port_without_a_plaintext_listener_is_refused():
    with pytest.raises(OperatorError, match="--port"):
        settings_of(given={"listeners": "A://:1,B://:2"}, port=7)
