"""A self-signed certificate, and an HTTPS server that uses it."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def certificate_for(host: str, folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return the server's TLS context and the path of the certificate that clients must trust."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    public_path, private_path = folder / "certificate.pem", folder / "key.pem"
    public_path.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private_path.write_bytes(private)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(public_path, private_path)
    return context, public_path


async def serve_https(context: ssl.SSLContext, nursery: trio.Nursery) -> int:
    """Serve HTTPS on loopback; every answer is 200. Return the port."""
    listen = partial(
        trio.serve_ssl_over_tcp, _answer, 0, context, host="127.0.0.1", https_compatible=True
    )
    (listener,) = await nursery.start(listen)
    return int(listener.transport_listener.socket.getsockname()[1])


async def _answer(stream: trio.SSLStream[trio.SocketStream]) -> None:
    try:
        await stream.receive_some(65536)
        await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    except trio.BrokenResourceError:
        pass  # the client refused the certificate
