"""Device-level traces: their capture by bpftrace, their decoding to whole commands, and their schema.

Nothing here knows a configuration or a figure. Text formats lie in `formats`, bpftrace scripts in `scripts`.
"""
