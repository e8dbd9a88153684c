"""Declares the sections of a scenario: their keys, defaults, and what each refuses by itself."""
