"""Provides error bands of figures and ratios, and how sure decisions are."""
