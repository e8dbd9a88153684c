"""Provides the page of a profile."""
