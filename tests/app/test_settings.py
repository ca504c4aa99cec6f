"""Settings of a node from the file, `--set` and shorthand options, and their precedence."""

from __future__ import annotations

import os

import pytest
from click.testing import CliRunner

from ottla.app.main import cli
from ottla.app.settings import cluster_directory, read_settings
from ottla.common.config.broker_configs import BrokerConfig
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
    "given", [{"log.dirs": ""}, {"log.dir": ""}, {"log.dirs": ","}, {"log.dirs": "", "log.dir": "/x"}]
)
def test_a_directory_that_is_empty_is_not_the_default(given):
    """Nor Apache Kafka's default: a variable was not set."""
    for settings in (settings_of(given=given), given):
        with pytest.raises(OperatorError, match=r"log\.dirs .* empty"):
            BrokerConfig.parse(settings)
    with pytest.raises(OperatorError, match=r"log\.dirs .* empty"):
        cluster_directory(given, None)


def test_a_cluster_lies_where_one_broker_would():
    assert cluster_directory({}, None) == os.path.abspath("ottla-data")
    assert cluster_directory({"log.dir": " /x "}, None) == "/x"
    assert cluster_directory({"log.dir": "/x", "log.dirs": "y"}, None) == os.path.abspath("y")
    assert cluster_directory({"log.dirs": "/x,/y"}, "/z") == "/z"
    with pytest.raises(OperatorError, match="several directories"):
        cluster_directory({"log.dir": "/x,/y"}, None)


@pytest.mark.parametrize("option", ["--data-dir", "--config", "--ready-file", "--audit-log", "--metrics-token-file"])
def test_a_path_that_is_empty_is_none(option):
    refused = CliRunner().invoke(cli, ["start", option, ""])
    assert refused.exit_code == 2
    assert f"Invalid value for '{option}': the path is empty" in refused.stderr


def test_a_cordoned_directory_is_named_as_in_log_dirs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = settings_of(given={"log.dirs": "one,./two/", "cordoned.log.dirs": " two/ ,*"})
    assert settings["cordoned.log.dirs"] == f"{settings['log.dirs'].split(',')[1]},*"
    assert settings_of(given={"cordoned.log.dirs": ""})["cordoned.log.dirs"] == ""


def test_directory_given_by_two_names_is_rejected(tmp_path):
    """The lock would report another broker."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").symlink_to("one")
    one, two = f"{tmp_path}/one", f"{tmp_path}/two"
    with pytest.raises(OperatorError, match=f"log.dirs contains {two}, the same directory as {one} through a link"):
        settings_of(given={"log.dirs": f"{one},{tmp_path}/three,{two}"})
    with pytest.raises(OperatorError, match=f"metadata.log.dir contains {two}, the same directory as {one}"):
        settings_of(data_dir=one, given={"metadata.log.dir": two})
    assert settings_of(data_dir=two, given={"metadata.log.dir": f"{two}/"})["metadata.log.dir"] == two


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
