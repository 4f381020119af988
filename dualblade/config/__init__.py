"""One run as data: the dataclasses of its sections, each setting checked when it is read.

No setting is acted on here. Importing any of it is cheap: harness, analysis and guest do.
"""
