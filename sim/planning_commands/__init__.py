"""Provides the commands that decide: thin layers over ``sim.planning``, one file each."""
