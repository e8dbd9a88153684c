"""Turns files and overrides into one document, and explains what is refused in it."""
