"""Runs third-party engines in this process, and records them like the reference engine."""
