"""The C sources of the engine, and how they are compiled: the ring, the stated device's clock, guarded pages.

Nothing else in C, and no Python beside the build.
"""
