"""Writes runs in the formats of other programs, one format a module."""
