"""Reads what is in a profile: for a terminal, for a page, and compared with another profile."""
