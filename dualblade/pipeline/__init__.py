"""The order of storage reads and link copies: copy threads, policies, links, slots on the device.

Nothing here knows how a path reaches its device, or which model asks.
"""
