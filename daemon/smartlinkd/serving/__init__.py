"""The HTTP server: Quart-Trio under hypercorn, inside our own nursery, with its faults shut out.

The problem: as they ship, hypercorn 0.18's trio worker and quart-trio 0.12 let any client end the
process with one request, keep finished connections for ever and cannot be stopped while a client
does not read. The choice: hypercorn's own classes, each subclassed where it is at fault, put
together by a `serve` of our own. Nothing upstream is replaced in place, so nothing else in the
process changes; the names that are overridden are checked before the first connection (see
`upstream.py`), because they are private and may go with any release.

What each guard is for (a test in `tests/serving` shows every fault with its guard taken out):

1. An exception in one connection leaves through the server's nursery and ends the process
   (hypercorn's issues 225, 329 and 365): `Connection.run` ends that connection alone. The requests
   known to cause one reach HTTP/2 and WebSocket code, which cleartext HTTP/1.1 does not need and
   configuration cannot switch off: `Http1._check_protocol` and `Http1._create_stream` never go
   there. Request targets that make Quart fail before its error handlers exist are refused there
   too, and a `Host` that is no host name in `GuardedQuart.create_url_adapter`.
2. quart-trio cancels the task that hands a finished connection back to the server, so it is never
   reused, closed or expired: `RequestTask` cancels on a disconnect only before the last message.
3. hypercorn shields each send from cancellation, so a client that stops reading makes the server
   unstoppable: `Connection.protocol_send` bounds every 64 KiB, and a cancelled send cuts the
   connection. A connection with bytes unread is reset at once, which can destroy the answer in
   flight (a 413, say): `Connection._read_data` reads on for a moment before it closes.
4. `Request.get_json` answers 500 to bytes that are not UTF-8 and to deep nesting: bodies are read
   by `smartlinkd.api.bodies`, which never calls it.
5. Quart's lifespan and background tasks swallow errors: there is no lifespan here at all, and
   `GuardedQuart` and `serve` refuse what would wait for one.
6. hypercorn's `read_timeout` also cuts slow handlers, so it stays unset; a connection has
   `Limits.idle_seconds` to deliver its next request head, and Quart bounds the body. A head that
   ends with what is read next passes the 16 KiB limit: `Http1._create_stream` measures it.
7. hypercorn closes the descriptors that it is given and makes them inheritable: `serve` works on
   duplicates. It logs each line twice unless it is given a logger: it is given one.
8. A WebSocket goes on buffering after its size limit: there are none (see 1), and `GuardedQuart`
   refuses to register one. Server-sent events do their work.
9. hypercorn takes any number of connections. A mere limit lets clients that say nothing shut out
   all others for the idle time, so when all places are taken the connection that has been idle the
   longest is closed for the newcomer (`Connection.give_way`), as RFC 9112, section 9.5, allows; 503
   is for when every place has a request to answer. Who would shut others out that way must open
   `Limits.connections` in the time a client takes to send its request. Requests that can hold a
   connection for as long as the client likes are bounded to three quarters (`places.py`).
10. hypercorn leaves the reason phrase empty, and some clients show nothing else of a refusal (a
   published one of crews, for one): `Http1.stream_send` puts it in.
11. At a stop, hypercorn closes connections that have been accepted and have not asked yet: their
   clients were neither refused nor answered. `Connection._idle_timeout` lets requests arrive that
   were on their way; each is the last of its connection.
12. h11 reads a body by its chunks also where its head has a length beside them, or is of HTTP/1.0.
   A proxy that reads it by its length would have what is behind it answered as a request it never
   saw: `Http1._create_stream` refuses both.

Where hypercorn and Quart do more around a request than the request takes, the guards do less: an
answer is one write and not three (`Http1._send_h11_event`), a connection has one task for its idle
time and not one for each request (`Connection._idle_timeout`), a request has one task and not
three, which is told what comes of it without a channel (`RequestTask`, `Messages`), a body that is
there as a whole is one message and the last, no deadline is set where there is none, and nothing is
looked for that no app has here (`Request`, `NoSessions`).
What that is worth: docs/performance.md.

Failures that never reach the application (a request that is not HTTP, a head too large, every
connection at work, a bug) carry the same JSON body as all others: the one that the application
names (`GuardedQuart.failure_body`).

Rejected: `hypercorn.trio.serve` with its names replaced at import time (other users of hypercorn in
the process would get the replacements, and the lifespan would stay), and a server of our own on
h11 (faster, but one more HTTP server to keep right).
"""

from __future__ import annotations

from smartlinkd.serving.app import GuardedQuart, has_whole_body, hold_until_answered
from smartlinkd.serving.server import Limits, Served, serve
from smartlinkd.serving.sockets import bind

__all__ = [
    "GuardedQuart",
    "Limits",
    "Served",
    "bind",
    "has_whole_body",
    "hold_until_answered",
    "serve",
]
