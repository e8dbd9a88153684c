"""Explains runs: what limits them, what each technique adds, what inputs decide."""
