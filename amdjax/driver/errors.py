"""What goes wrong, as the exit code tells it."""

from __future__ import annotations


class BadUsage(Exception):
    """A flag or a file is wrong: exit code 2."""


class Failed(Exception):
    """What was asked for cannot be done, or came out wrong: exit code 1."""
