"""Evaluates many runs of one scenario with other values, side by side."""
