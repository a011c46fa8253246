"""Formulae as model input: `tree`, a token a node, and `text`, the paper's characters."""
