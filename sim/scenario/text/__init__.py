"""Reads a YAML text as plain data with the place of each value, and writes one."""
