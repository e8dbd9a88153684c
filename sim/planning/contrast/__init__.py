"""Compares variants and runs: differences, how sure they are, what is best."""
