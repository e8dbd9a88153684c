"""Fits to published kernel timings, one package per source."""
