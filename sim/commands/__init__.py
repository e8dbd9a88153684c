"""Provides the commands of ``infersim``; only they and ``sim.cli`` import typer."""
