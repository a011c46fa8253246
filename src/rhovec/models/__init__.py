"""Encoder and decoder: formulae to unit vectors, and back."""
