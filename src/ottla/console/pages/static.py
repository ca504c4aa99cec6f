"""Static files of the package. Only the names in TYPES are served."""

from __future__ import annotations

from importlib import resources

from starlette.responses import Response

from ottla.console.context import Context, PageError

TYPES = {
    "console.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


def show(context: Context) -> Response:
    """A file. A browser asks again at the next start of the console, since the version may differ."""
    name = context.path["name"]
    if name not in TYPES:
        raise PageError(404, "This file does not exist.")
    data = resources.files("ottla.console").joinpath("static", name).read_bytes()
    return Response(data, media_type=TYPES[name], headers={"cache-control": "no-cache"})
