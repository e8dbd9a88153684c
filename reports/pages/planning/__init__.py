"""Provides the pages of commands that need many runs of a scenario: sweeps, comparisons, plans."""
