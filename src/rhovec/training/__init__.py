"""Training: the encoder is distilled from a kernel."""
