"""Sizes fleets: which layouts fit, how many replicas hold a load, and what they cost."""
