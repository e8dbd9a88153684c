"""Provides the figures of all pages: one file each, with a pure ``figure(...)``."""
