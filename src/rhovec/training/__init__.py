"""Training: the encoder is distilled from a kernel, and the decoder learns to invert the encoder."""
