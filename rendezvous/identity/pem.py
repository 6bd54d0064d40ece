"""TLS contexts of what is in PEM in memory. Workers load it: only the standard library, and no asyncio."""

import os
import ssl
from typing import Annotated

from ..wire.values import Text

Pem = Annotated[str, Text(16_384)]
"""A certificate or a key, where it crosses to another process or lies in a file."""


def make_context(protocol: int, authority: str, pair: str) -> ssl.SSLContext:
    """TLS 1.3 with a peer that must have a certificate of `authority`; `pair`: as for `load_pair`.

    Args:
        protocol: `ssl.PROTOCOL_TLS_SERVER` for who listens, `ssl.PROTOCOL_TLS_CLIENT` for who dials.

    Raises OSError, ValueError.
    """
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=authority)
    load_pair(context, pair)
    return context


def load_pair(context: ssl.SSLContext, pair: str) -> None:
    """Has `context` use a certificate and its key, one after the other. Raises OSError, ValueError.

    Python takes them from a file only: here one that is in memory.
    """
    descriptor = os.memfd_create("elastic-run", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pair.encode())
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=refuse_passphrase)


def refuse_passphrase() -> str:
    """In place of OpenSSL's question at the terminal, where this process would stand still until it is answered."""
    raise ValueError("its key is encrypted with a passphrase: write it without one, with mode 0600")
