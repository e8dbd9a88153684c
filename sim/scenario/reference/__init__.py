"""Describes the contract: the JSON Schema for editors, and every key for people."""
