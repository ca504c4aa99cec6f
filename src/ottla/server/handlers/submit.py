"""How a request that changes metadata waits: its channel parks until the quorum driver has committed the records.

One that makes partitions also waits until this broker has opened them, so that its client can use them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.metadata.image import MetadataImage
from ottla.server.context import BrokerContext
from ottla.server.handlers.quorum.envelope import EnvelopedChannel
from ottla.server.request import Request

Operation = Callable[[MetadataImage, ControllerContext], ControllerResult[Any]]


def submit(context: BrokerContext, request: Request, operation: Operation, *, makes_partitions: bool = False) -> None:
    """Run `operation` in the controller's order and answer with its response once its records are committed."""

    def done(response: object | None, error: BaseException | None) -> None:
        channel = request.channel
        lost = isinstance(error, KafkaError) and error.code is ErrorCode.NOT_CONTROLLER
        if lost and isinstance(channel, EnvelopedChannel):
            # The broker that forwarded it asks the next controller; its client need not know.
            channel.refuse(ErrorCode.NOT_CONTROLLER)
        elif error is None and makes_partitions:
            context.replicas.when_opened(lambda: request.answer(lambda: _outcome(request, response, None)))
        else:
            request.answer(lambda: _outcome(request, response, error))

    context.controller.submit(operation, done)


def _outcome(request: Request, response: Any, error: BaseException | None) -> object:
    if error is not None:
        raise error
    if response is None:
        raise InvariantError("a committed operation has no response")
    count_errors(request, response)
    return response


def count_errors(request: Request, response: Any) -> None:
    """Note the error codes of an admin response: its own, and those of the list it carries."""
    code = getattr(response, "error_code", ErrorCode.NONE)
    if code:
        request.count_error(code)
    for name in ("topics", "responses", "results"):
        for item in getattr(response, name, ()):
            # Some nest one level deeper: a topic without an error of its own, and its partitions.
            for each in (item, *getattr(item, "partitions", ())):
                if code := getattr(each, "error_code", ErrorCode.NONE):
                    request.count_error(code)
