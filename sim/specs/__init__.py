"""Describes models, GPUs, engines, profiles and deployments, as frozen records."""
