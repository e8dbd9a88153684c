"""A small engine in PyTorch that runs real tokens through the schedulers of the simulator.

It is there to be compared with: the same scenario, the same policy, once on the simulated clock and
once on the wall clock. ``README.md`` beside this file is the map.
"""
