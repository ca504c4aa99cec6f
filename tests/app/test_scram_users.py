"""`ottla format --add-scram`: users of a new cluster, in the format of `kafka-storage`."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ottla.app.clock import SystemRng
from ottla.app.main import cli
from ottla.app.scram_users import scram_record
from ottla.common.errors import OperatorError
from ottla.protocol.messages.metadata_records import UserScramCredentialRecord
from ottla.quorum.snapshot_file import BOOTSTRAP
from ottla.security.sasl.credentials import ScramMechanism, credential_of, salted_password

from ..quorum.snapshot_content import read_snapshot

PASSWORD = "very=secret"


def formatted(directory: Path, *options: str) -> Result:
    config = directory / "server.properties"
    config.write_text(
        "node.id=1\nprocess.roles=broker,controller\nlisteners=PLAINTEXT://:0,CONTROLLER://localhost:19093\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={directory / 'data'}\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
    )
    return CliRunner().invoke(cli, ["format", "--config", str(config), "--standalone", *options])


def test_users_stand_in_the_first_snapshot(tmp_path: Path) -> None:
    users = [f"SCRAM-SHA-512=[name=ann,password={PASSWORD}]", "SCRAM-SHA-256=[name=ann,password=b,iterations=8192]"]
    done = formatted(tmp_path, *(part for user in users for part in ("--add-scram", user)))
    assert done.exit_code == 0, done.output
    data = (tmp_path / "data" / "__cluster_metadata-0" / BOOTSTRAP.file_name).read_bytes()
    found = [record.message for record in read_snapshot(data).records]
    assert type(found[0]).__name__ == "FeatureLevelRecord"
    credentials = [each for each in found if isinstance(each, UserScramCredentialRecord)]
    assert [(each.name, each.mechanism, each.iterations) for each in credentials] == [
        ("ann", 2, 4096),
        ("ann", 1, 8192),
    ]
    salt = bytes(credentials[0].salt)
    wanted = credential_of(
        ScramMechanism.SHA_512, salted_password(ScramMechanism.SHA_512, PASSWORD, salt, 4096), salt, 4096
    )
    assert (bytes(credentials[0].stored_key), bytes(credentials[0].server_key)) == wanted[1:3]
    assert PASSWORD.encode() not in data


def test_a_password_that_was_salted_elsewhere() -> None:
    mechanism, salt = ScramMechanism.SHA_256, b"some salt"
    salted = salted_password(mechanism, PASSWORD, salt, 4096)
    text = f'SCRAM-SHA-256=[name="ann b",salt={b64encode(salt).decode()},saltedpassword={b64encode(salted).decode()}]'
    record = scram_record(text, SystemRng())
    assert record.name == "ann b"
    assert record.stored_key == credential_of(mechanism, salted, salt, 4096).stored_key


@pytest.mark.parametrize(
    "argument",
    [
        "very=secret",
        "PLAIN=[name=a,password=very=secret]",
        "SCRAM-SHA-256=name=a,password=very=secret",
        "SCRAM-SHA-256=[password=very=secret]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,saltedpassword=very=secret]",
        "SCRAM-SHA-256=[name=a,salt=c2FsdA==,saltedpassword=very=secret]",
        "SCRAM-SHA-256=[name=a,password=very=secret,iterations=4095]",
        "SCRAM-SHA-256=[name=a,password=very=secret,iterations=16385]",
        "SCRAM-SHA-256=[name=a,password=very=secret,secret=1]",
    ],
)
def test_a_mistake_is_named_and_no_password_is_shown(argument: str) -> None:
    with pytest.raises(OperatorError, match="--add-scram") as caught:
        scram_record(argument, SystemRng())
    assert "secret" not in str(caught.value)


def test_an_old_version_has_no_place_for_users(tmp_path: Path) -> None:
    user = "SCRAM-SHA-256=[name=a,password=b]"
    done = formatted(tmp_path, "--release-version", "3.4", "--add-scram", user)
    assert done.exit_code == 2
    assert "--add-scram needs metadata.version 3.5-IV2" in done.stderr
    assert not (tmp_path / "data").exists()
