"""Provides a small engine in PyTorch that runs real tokens through the simulator's schedulers.

It exists for comparison: the same scenario, the same policy, once on the simulated clock and once
on the wall clock. ``README.md`` in this folder is the map.
"""
