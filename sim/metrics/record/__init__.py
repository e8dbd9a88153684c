"""Holds what a run left behind, and what its metrics share: pools, warm-up, attribution."""
