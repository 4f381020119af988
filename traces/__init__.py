"""Device-level traces: capture, decoding and their schema."""
