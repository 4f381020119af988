"""When storage and link work: copy threads, the strategies that overlap them, the links, the slots on the device.

Nothing here knows how a path reaches its device, nor which model asks.
"""
