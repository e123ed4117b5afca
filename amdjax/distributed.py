"""Several processes: there is one. Programs that start a cluster are told so.

`is_initialized` is false and `shutdown` does nothing; `initialize` accepts a cluster of one.
"""

from __future__ import annotations

from typing import Any

from amdjax.core.boundaries import public_surface as _public_surface

_initialized = False


def initialize(
    coordinator_address: str | None = None, num_processes: int | None = None,
    process_id: int | None = None, local_device_ids: Any = None,
    cluster_detection_method: str | None = None, initialization_timeout: int = 300,
    heartbeat_timeout_seconds: int = 100, shutdown_timeout_seconds: int = 300,
    coordinator_bind_address: str | None = None, slice_index: int | None = None,
    partition_index: int | None = None,
) -> None:  # fmt: skip
    """Join a cluster of one process, which is all that is supported.

    Args:
      coordinator_address: accepted; nothing is contacted.
      num_processes: must be 1 or None.
      process_id: must be 0 or None.
      local_device_ids: accepted.
      cluster_detection_method: accepted.
      initialization_timeout: accepted.
      heartbeat_timeout_seconds: accepted.
      shutdown_timeout_seconds: accepted.
      coordinator_bind_address: accepted.
      slice_index: accepted.
      partition_index: accepted.

    Raises:
      NotImplementedError: there is to be more than one process.
      RuntimeError: it was called before.

        >>> amdjax.distributed.initialize(num_processes=1, process_id=0)
        >>> amdjax.distributed.shutdown()
    """
    global _initialized
    if num_processes not in (None, 1) or process_id not in (None, 0):
        raise NotImplementedError(
            "distributed.initialize: amdjax runs in one process, got"
            f" num_processes={num_processes}, process_id={process_id}"
        )
    if _initialized:
        raise RuntimeError("distributed.initialize should only be called once.")
    _initialized = True


def is_initialized() -> bool:
    """Whether `initialize` was called.

    Returns:
      A bool.

        >>> amdjax.distributed.is_initialized()
        False
    """
    return _initialized


def shutdown() -> None:
    """Leave the cluster of one process.

    >>> amdjax.distributed.shutdown()
    """
    global _initialized
    _initialized = False


_public_surface(globals())
