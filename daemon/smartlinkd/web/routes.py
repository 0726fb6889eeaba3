"""Where the owner's page is served, and how `/` leads to it."""

from __future__ import annotations

from typing import Final

from quart import Quart, Response, request
from quart.wrappers.response import DataBody
from werkzeug.exceptions import NotFound

from smartlinkd.web.assets import IMMUTABLE, REVALIDATE, serve
from smartlinkd.web.bundle import Site, read_bundle
from smartlinkd.web.policy import HEADERS, content_security_policy

PREFIX: Final = "/app/"


def register(target: Quart, site: Site) -> None:
    """Serve the page to anyone: there is no secret in its files. `target` is the main app."""
    bundle = read_bundle(site)
    headers = {
        **HEADERS,
        "Content-Security-Policy": content_security_policy(bundle.import_map, site.picture_url),
    }

    async def page() -> Response:
        return bundle.index.answer(headers, cache=REVALIDATE)

    async def file(path: str) -> Response:
        folder, _, name = path.partition("/")
        if folder == bundle.version and name in bundle.files:
            return bundle.files[name].answer(headers, cache=IMMUTABLE)
        if path in bundle.stable:
            return bundle.stable[path].answer(headers, cache=REVALIDATE)
        raise NotFound

    async def to_page() -> Response:
        return _redirect("app/")

    async def to_crews() -> Response:
        return _redirect("app/#/crews")

    serve(target, PREFIX, page)
    serve(target, f"{PREFIX}<path:path>", file)
    serve(target, PREFIX.rstrip("/"), to_page)
    serve(target, "/dashboard", to_crews)  # where the crews' page was

    @target.before_request
    async def lead_to_page() -> Response | None:
        """With an Authorization header `/` belongs to the default crew."""
        if (
            request.path == "/"
            and request.method in ("GET", "HEAD")
            and "Authorization" not in request.headers
        ):
            return _redirect("app/")
        return None


def _redirect(address: str) -> Response:
    # A relative one, which stays right behind a proxy that serves the daemon below a path.
    headers = {"Location": address, "Cache-Control": "no-store", "Vary": "Authorization"}
    return Response(DataBody(b""), 302, headers)
