"""Finds the highest load that a scenario holds."""
