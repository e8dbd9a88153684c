"""Provides a page on this machine that asks one run by hand and shows its answer."""
