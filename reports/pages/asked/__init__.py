"""Provides the page that asks one run by hand: its form, and what its answers put into it."""
