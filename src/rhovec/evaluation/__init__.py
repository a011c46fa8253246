"""How good the vectors are: the paper's measures, and those that users care about."""
