"""A node's control plane: the metadata log, its own controller, and the channel to the active one."""

from __future__ import annotations

from typing import NamedTuple

from ottla.controller.driver import Controller
from ottla.metadata.log import LeaderAndEpoch
from ottla.server.metadata_log.node import NodeMetadataLog
from ottla.server.requests.forwarding import ControllerChannel


class Control(NamedTuple):
    """Implements `LeadershipListener`: controller and channel follow the leader of the metadata log."""

    metadata: NodeMetadataLog
    controller: Controller
    channel: ControllerChannel

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`."""
        self.controller.on_leader_change(leader, active)
        self.channel.leader_changed()
