"""Provides the pages of decisions."""
