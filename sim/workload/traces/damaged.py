"""Defines the error of a packed file that cannot be unpacked, which readers turn into their own."""


class DamagedError(Exception):
    """A packed file that cannot be unpacked; the message is the reason."""
