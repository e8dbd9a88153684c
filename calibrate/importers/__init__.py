"""Fits to kernel timings that others published, one package per source."""
