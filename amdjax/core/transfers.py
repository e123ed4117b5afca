"""Guards on transfers between host and devices: `transfer_guard` and its kinds.

A transfer is explicit where the program asks for it, with `device_put` or `device_get`, and
implicit where an operation or a compiled call moves what it needs. "disallow" and "log" are about
implicit ones, "disallow_explicit" and "log_explicit" about both.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from amdjax.core.config import config
from amdjax.core.context import is_recording
from amdjax.core.errors import JaxRuntimeError


class _Asked(threading.local):
    explicitly = False


_asked = _Asked()


@contextmanager
def explicit() -> Iterator[None]:
    """Transfers in the body are those that the program asked for."""
    before, _asked.explicitly = _asked.explicitly, True
    try:
        yield
    finally:
        _asked.explicitly = before


def check(kind: str, what: str) -> None:
    """Let the guard of a kind of transfer know of one.

    What goes to a device while a program is recorded is a constant of it, and no transfer.

    Args:
      kind: "host_to_device", "device_to_device" or "device_to_host".
      what: is transferred, for the message.

    Raises:
      JaxRuntimeError: the transfer is not allowed.
    """
    if kind == "host_to_device" and is_recording():
        return
    level = config.read(f"transfer_guard_{kind}")
    if level in (None, "allow") or (_asked.explicitly and not level.endswith("explicit")):
        return
    name = kind.replace("_", "-")
    if level.startswith("log"):
        # late: seldom asked for
        import logging

        logging.getLogger("amdjax").warning("%s transfer: %s", name, what)
        return
    raise JaxRuntimeError(f"Disallowed {name} transfer: {what}")
