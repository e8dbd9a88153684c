"""Provides the event loop: SimPy's clock, replicas, the fleet in front of them, the recorder."""
