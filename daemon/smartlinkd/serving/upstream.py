"""What of hypercorn and quart-trio the guards override or call, and whether it is still there."""

from __future__ import annotations

from hypercorn.protocol.h11 import H11Protocol
from hypercorn.protocol.http_stream import HTTPStream
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from quart_trio.wrappers import TrioRequest


def check_upstream() -> None:
    """Raise `RuntimeError` when a name that a guard overrides or calls is no longer there."""
    names: dict[type, tuple[str, ...]] = {
        TCPServer: ("run", "protocol_send", "_read_data", "_idle_timeout",
                    "_initiate_server_close"),
        H11Protocol: ("stream_send", "_check_protocol", "_create_stream", "_send_error_response",
                      "_send_h11_event", "_maybe_recycle"),
        HTTPStream: ("_send_error_response",),
        TaskGroup: ("spawn_app",),
        TrioASGIHTTPConnection: ("_create_request_from_scope", "_send_response"),
        TrioRequest: ("blueprints",),
        QuartTrio: ("add_background_task", "add_websocket", "create_url_adapter"),
    }  # fmt: skip
    gone = [
        f"{c.__name__}.{name}" for c, all_ in names.items() for name in all_ if name not in dir(c)
    ]
    if gone:
        raise RuntimeError(
            f"{', '.join(gone)}: gone from the installed hypercorn or quart-trio; "
            "smartlinkd.serving is written for hypercorn 0.18, quart 0.22 and quart-trio 0.12: "
            "install those"
        )
