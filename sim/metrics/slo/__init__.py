"""Holds the limits of the SLO, and says how the requests of a run met them."""
