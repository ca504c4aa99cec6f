"""The setup of `--security sasl_ssl`, on one node."""

from __future__ import annotations

import os

import pytest

from ottla.app.ports import HOST
from ottla.client.admin.cluster import Cluster
from ottla.common.errors import OperatorError
from ottla.security.sasl.credentials import BY_NAME
from ottla.security.sasl.scram import ScramClient

from ..cluster.nodes import Nodes
from .security import MECHANISM, PASSWORD, make_security


def test_login_requires_the_password(tmp_path):
    def as_client(password):
        return security.client._replace(login=lambda _: ScramClient(BY_NAME[MECHANISM], "client", password, os.urandom))

    security = make_security("sasl_ssl", tmp_path / "keys", [HOST])
    nodes = Nodes(tmp_path, 1, security.node_settings, first=security.format_options)
    try:
        nodes.start()
        for each in (security.client, as_client(PASSWORD)):
            with Cluster(nodes.bootstrap_servers, security=each) as cluster:
                cluster.topics.all()
        with (
            Cluster(nodes.bootstrap_servers, security=as_client("wrong")) as stranger,
            pytest.raises(OperatorError, match="rejected the login"),
        ):
            stranger.topics.all()
    finally:
        nodes.close()
