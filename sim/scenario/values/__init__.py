"""Holds the kinds of single values: what reads them, and how they are spelt."""
