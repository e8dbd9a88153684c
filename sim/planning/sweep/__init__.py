"""Evaluates the points of a grid."""
