"""Provides what all pages share: theme, formats, tables, definitions, the page itself."""
