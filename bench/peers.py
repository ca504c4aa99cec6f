"""The peers under the name that `groups.py` knows."""

from harness.peers import PEERS, ROOT, Server

__all__ = ["PEERS", "ROOT", "Server"]
