"""Attackers that exclude other clients, in a separate process: connections that cost the broker much and themselves
little.

    python -m tests.faults.besiegers half-open|slow|plain|scram HOST PORT --crowd 1000 --seconds 60

half-open: as many connections, each starts a TLS handshake and never continues it; when closed, it reconnects. slow:
each continues it byte by byte. plain, scram: each logs in with a wrong password, repeatedly, every other time without
waiting for the response.

It ends after `--seconds`, but not before each has done so once, or with its input, and prints the results as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import ssl
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from ottla.protocol.header import encode_request
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import ApiKey

PASSWORD = "wrong-password-of-a-besieger"
CONNECTING = 200
"""Concurrent connection attempts: more of them wait in the backlog, or are lost there."""
OTHER_DESCRIPTORS = 100
SLOW_S = 0.05
"""Between two bytes of a slow handshake."""


def affordable(wanted: int) -> int:
    """The number of connections allowed for this process, after raising its limit; printed if it is lower than
    requested."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + OTHER_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < needed:
            found = soft - OTHER_DESCRIPTORS
            print(f"ONLY {found} CONNECTIONS of {wanted}: raise the limit on open files (ulimit -n)", file=sys.stderr)
            return found
    return wanted


def client_hello() -> bytes:
    """The first message of a client, which costs the server a signature."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


class Besieger:
    """One kind of attacker; `counts` contains its events."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._hello = client_hello()
        self._connecting = asyncio.Semaphore(CONNECTING)
        self._waited_for: set[int] = set()
        self._all_done = asyncio.Event()
        self.counts: Counter[str] = Counter()

    async def play(self, kind: str, crowd: int) -> None:
        """A crowd, for ever; each comes again when its connection fails."""
        role: Callable[[int], Awaitable[None]] = getattr(self, kind.replace("-", "_"))

        async def one(number: int) -> None:
            while True:
                try:
                    await role(number)
                except (OSError, asyncio.IncompleteReadError):
                    self.counts["failed"] += 1

        self._waited_for = set(range(crowd))
        await asyncio.gather(*map(one, range(crowd)))

    def _have_done(self, number: int) -> None:
        self._waited_for.discard(number)
        if not self._waited_for:
            self._all_done.set()

    async def done(self, seconds: float) -> None:
        """Whether the time is over, and each has had its turn."""
        await asyncio.sleep(seconds)
        await self._all_done.wait()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with self._connecting:
            made = await asyncio.open_connection(*self._address)
        self.counts["connections"] += 1
        return made

    async def half_open(self, number: int) -> None:
        reader, writer = await self._connect()
        writer.write(self._hello)
        if await reader.read(1):
            self.counts["begun"] += 1
            self._have_done(number)
        while await reader.read(1 << 16):
            pass
        self.counts["closed by the broker"] += 1
        writer.close()

    async def slow(self, number: int) -> None:
        reader, writer = await self._connect()
        for byte in self._hello[:-1]:
            writer.write(bytes([byte]))
            await asyncio.sleep(SLOW_S)
            self._have_done(number)
            if reader.at_eof():
                break
        else:
            await reader.read(1)
        self.counts["closed by the broker"] += 1
        writer.close()

    async def plain(self, number: int) -> None:
        name = ("ann", "nobody")[number % 2]
        reader, writer = await self._connect()
        writer.write(_frames("PLAIN", f"\0{name}\0{PASSWORD}"))
        await self._failed(number, reader, writer)

    async def scram(self, number: int) -> None:
        name = ("bob", "nobody")[number % 2]
        reader, writer = await self._connect()
        writer.write(_frames("SCRAM-SHA-256", f"n,,n={name},r=nonce"))
        await _frame(reader)
        challenge = (await _frame(reader)).partition(b"r=")[2].partition(b",")[0].decode()
        proof = "A" * 43 + "="
        writer.write(_authenticate(f"c=biws,r={challenge},p={proof}"))
        await self._failed(number, reader, writer)

    async def _failed(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Every other one waits for it to be said, the others are gone meanwhile."""
        if self.counts["logins"] % 2:
            while await reader.read(1 << 16):
                pass
            self.counts["refused"] += 1
        else:
            await writer.drain()
        self.counts["logins"] += 1
        self._have_done(number)
        writer.close()


def _authenticate(token: str) -> bytes:
    request = SaslAuthenticateRequest(auth_bytes=token.encode())
    return bytes(encode_request(ApiKey.SASL_AUTHENTICATE, 2, 2, "besieger", request))


def _frames(mechanism: str, token: str) -> bytes:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return bytes(encode_request(ApiKey.SASL_HANDSHAKE, 1, 1, "besieger", request)) + _authenticate(token)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def _end_of_input() -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def read() -> None:
        if not os.read(0, 1 << 16):
            ended.set()

    loop.add_reader(0, read)
    await ended.wait()


async def besiege(kind: str, host: str, port: int, crowd: int, seconds: float) -> Counter[str]:
    """Run all of them together; returns their counts."""
    besieger = Besieger(host, port)
    playing = asyncio.ensure_future(besieger.play(kind, crowd))
    ends = [asyncio.ensure_future(each) for each in (besieger.done(seconds), _end_of_input())]
    await asyncio.wait([playing, *ends], return_when=asyncio.FIRST_COMPLETED)
    for task in (playing, *ends):
        task.cancel()
    results = await asyncio.gather(playing, *ends, return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return besieger.counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.besiegers")
    parser.add_argument("kind", choices=["half-open", "slow", "plain", "scram"])
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--crowd", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    chosen = parser.parse_args()
    crowd = affordable(chosen.crowd)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # a line for each write to a connection that was closed
    counts = asyncio.run(besiege(chosen.kind, chosen.host, chosen.port, crowd, chosen.seconds))
    print(json.dumps({"crowd": crowd, **counts}))


if __name__ == "__main__":
    main()
