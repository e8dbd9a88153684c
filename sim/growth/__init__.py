"""Defines how decoding sequences advance: while they run, and in the rows that are recorded."""
