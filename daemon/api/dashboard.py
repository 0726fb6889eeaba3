"""`/dashboard`: the page on which the owner sees the crews, runs them, and follows what they do.

It is a client like any other. It logs in as the owner does (`routes/auth.py`), asks what only the
owner may ask (`routes/crews.py`), and from there on calls a crew's own API with that crew's token.
That token outlives the owner's session, so it is asked for again every few seconds and before each
thing that is done: a session that was ended shows and does nothing more. The files are open to
anyone: there is no secret in them.

What crews and their clients write is shown here, in the same page that holds the owner's session,
so it must never become markup. The scripts put all of it in as text, and the policy has the browser
refuse anything else (Trusted Types, W3C), should one of them forget.

Rejected: a bundler (nobody can read what it makes), and cookies for the session (then other sites'
pages could send requests in the owner's name).
"""

from __future__ import annotations

from typing import Final

from quart import Quart

from daemon.api.static import POLICY, serve_page

_MODULES: Final = (
    "crew",
    "crews",
    "dom",
    "events",
    "execution",
    "executions",
    "json",
    "login",
    "main",
    "question",
    "results",
    "run",
    "session",
    "sse",
    "status",
    "times",
    "waiting",
)
_FILES: Final = {
    "/dashboard": "dashboard.html",
    "/dashboard/dashboard.css": "dashboard.css",
    **{f"/dashboard/{name}.js": f"dashboard/{name}.js" for name in _MODULES},
}
_TEXT_ONLY: Final = "require-trusted-types-for 'script'; trusted-types 'none'"


def register(target: Quart) -> None:
    """Serve the page."""
    serve_page(target, _FILES, policy=f"{POLICY}; {_TEXT_ONLY}")
