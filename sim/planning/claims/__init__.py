"""Tests claims about serving: variants of a scenario, and what must be true of their figures."""
