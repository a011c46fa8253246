"""How well vectors reproduce the kernel, and decoded formulae the meaning, with 95 % intervals."""
