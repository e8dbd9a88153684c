"""Sums up how engines worked: caches, drafts, tokens, and points on the roofline."""
