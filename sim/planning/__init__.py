"""Provides decisions: many runs of one scenario with other values, and what they say together.

A ``Point`` is one set of overrides; ``evaluate`` turns it into an ``Outcome``; an ``Executor``
does that for many points at once. Whatever is asked on top (sweep, compare, ...) is a module of
its own.
"""
