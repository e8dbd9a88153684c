"""Computes latencies: gaps between tokens, percentiles, intervals, parts, and how many waited."""
