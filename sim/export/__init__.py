"""How do other programs see a run? Each module writes one of their formats."""
