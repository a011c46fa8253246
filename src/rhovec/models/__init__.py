"""The encoder: formulae to unit vectors."""
