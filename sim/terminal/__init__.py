"""Renders results and answers in a terminal of 88 columns, with rich."""
