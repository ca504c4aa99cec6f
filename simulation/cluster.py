"""The smallest cluster of the simulated world: one node, and the network to it."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.platform.endpoint import Endpoint
from simulation.loop import SimLoop
from simulation.network import Network
from simulation.node import SimNode
from simulation.rng import SimRng
from simulation.trace import Trace

LISTENER = Endpoint("PLAINTEXT", "PLAINTEXT", "broker-1", 9092)


class SimCluster(SimNode):
    """A cluster of one."""

    def __init__(self, loop: SimLoop, rng: SimRng, trace: Trace, settings: Mapping[str, str]) -> None:
        network = Network(loop, rng.fork("network"), trace, (LISTENER.host, LISTENER.port))
        super().__init__(loop, rng, trace, network, [LISTENER], settings)
