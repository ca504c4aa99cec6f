"""The `ottla` command: mounted commands, and modules that stay unloaded."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import ottla
from ottla import __version__
from ottla.app.main import MOUNTED, cli
from ottla.common.kafka.ids import uuid_from_string, uuid_to_string


def modules_after(*arguments: str) -> set[str]:
    """The modules that a run of the command has loaded."""
    code = (
        "import sys\nfrom ottla.app.main import main\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.splitlines())


def test_help_lists_every_command_without_loading_it():
    loaded = modules_after("--help")
    assert not any(name.startswith(("ottla.server", "ottla.client", "ottla.cli.", "ottla.pipeline")) for name in loaded)
    text = CliRunner().invoke(cli, ["--help"]).output
    for name in (*MOUNTED, "start"):
        assert f"  {name} " in text


def test_start_loads_no_tool():
    loaded = modules_after("start", "--config", "/no/such/file")
    assert "ottla.server.broker" in loaded
    unwanted = (
        "ottla.api",
        "ottla.cli",
        "ottla.client",
        "ottla.pipeline",
        "confluent_kafka",
        "rich",
        "pyarrow",
        "pyspark",
        "numpy",
        "_hashlib",  # OpenSSL
        "ipaddress",
    )
    assert not [name for name in loaded if name.startswith(unwanted)]


def test_the_package_alone_loads_nothing_of_the_client():
    code = (
        "import sys, ottla\n"
        "print([name for name in sys.modules if name.startswith(('ottla.', 'confluent_kafka', 'asyncio'))])\n"
        "from ottla import Admin, SimpleConsumer\n"
        "print('confluent_kafka' in sys.modules)\n"
        "print(sorted(name for name in ottla._CLIENT if not getattr(ottla, name)))\n"
        "print(hasattr(ottla, 'Consumers'))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == ["[]", "False", "[]", "False"]


def test_clients_load_no_code_for_zookeeper(code_for_zookeeper):
    code = "import sys\nfrom ottla import Admin, Consumer, Producer\nprint('\\n'.join(sys.modules))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.splitlines()
    assert "ottla.api.producer" in loaded
    assert code_for_zookeeper(loaded) == []


@pytest.mark.parametrize("name", MOUNTED)
def test_mounted_commands_load_and_explain_themselves(name):
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, click.Command)
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("topc list", "No such command 'topc'; did you mean topic?"),
        ("xyz", "No such command 'xyz'."),
        ("topic crate t", "No such command 'crate'; did you mean create?"),
        ("topic xyz", "No such command 'xyz'."),
        ("topic create t --partition 3", "No such option '--partition'; did you mean --partitions?"),
        ("start --data-dirr x", "No such option '--data-dirr'; did you mean --data-dir?"),
        ("start --xyz", "No such option '--xyz'."),
    ],
)
def test_misspelled_name_gets_a_suggestion_of_one_style(arguments: str, message: str) -> None:
    result = CliRunner().invoke(cli, arguments.split())
    assert result.exit_code == 2
    assert result.output.splitlines()[-1] == f"Error: {message}"


def test_tools_load_no_broker():
    for name in ("topic", "produce"):
        assert not any(module.startswith("ottla.server") for module in modules_after(name, "--help"))


def test_version_names_the_record_module():
    text = CliRunner().invoke(cli, ["--version"]).output
    assert re.match(rf"ottla {re.escape(__version__)} \(record module: (compiled|pure), Python 3", text)


def test_version_names_the_revision_of_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ottla, "__path__", [str(tmp_path)])
    assert "revision: unknown" in CliRunner().invoke(cli, ["--version"]).output
    assert ottla.full_version() == __version__
    (tmp_path / "_revision.txt").write_text("0123456789ab\n")
    assert "revision: 0123456789ab" in CliRunner().invoke(cli, ["--version"]).output
    assert ottla.full_version() == f"{__version__}+0123456789ab"


def test_version_of_pure_modules_gives_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.record.walk.IMPLEMENTATION", "pure")
    output = CliRunner().invoke(cli, ["--version"]).output
    assert "install a C compiler and the headers of Python" in output
    assert re.search(r"`pip install (--\S+ )*\.`", output)  # pip refuses a command without a requirement


def test_unknown_command_is_a_usage_error():
    result = CliRunner().invoke(cli, ["nonsense"])
    assert result.exit_code == 2


def test_format_prints_a_random_uuid():
    first, second = (CliRunner().invoke(cli, ["format", "--random-uuid"]).output for _ in range(2))
    assert first != second
    assert uuid_to_string(uuid_from_string(first.strip())) == first.strip()
    assert not first.startswith("-")


WITHOUT_PYARROW = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
from ottla.__main__ import main
main()
"""


def test_pipeline_without_its_extra_is_one_sentence() -> None:
    """Also where an option of the command is parsed before the command runs."""
    command = [sys.executable, "-c", WITHOUT_PYARROW, "pipeline", "vacuum", "--table", "lake"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert re.fullmatch(r"ottla: the pipeline needs .*pyarrow.*: run .*'ottla\[lake\]'`\n", done.stderr)
