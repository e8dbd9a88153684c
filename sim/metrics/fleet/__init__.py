"""Sums up the fleet of a run: pools, routing, scaling, failures, hand-overs, energy, rejections."""
